from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Iterator
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.codec import decode, encode, from_plain
from stepvad.events.calibration import calibration_path
from stepvad.events.record import Record, Review
from stepvad.explain.event import EventExplanation
from stepvad.fleet import registry, streams
from stepvad.fleet.connection import Connection, ConnectionThread, UnavailableError
from stepvad.fleet.link import Link
from stepvad.fleet.permissions import Owner, accounts
from stepvad.fleet.registry import Rollout, Run, Status
from stepvad.fleet.settings import StreamSettings
from stepvad.formats import write_clip
from stepvad.poses import Clip, Track
from stepvad.site import demo
from stepvad.site.accounts import FILE_NAME as ACCOUNTS
from stepvad.site.accounts import Accounts
from stepvad.site.app import PageParts
from stepvad.site.settings.file import load
from stepvad.site.stages import Supervisor
from stepvad.site.status import LiveStatus
from stepvad.site.store.events import FILE_NAME, Store
from stepvad.skeletons import unnamed
from tests.fleet.servers import Broker, broker, broker_settings
from tests.site.records import explanation, record
from tests.video.servers import SLOWER, wait_until

CAMERA = '[[cameras]]\nname = "door"\nurl = "demo:"\nrate = 12.5\n'
OTHER = "[pose]\nprocesses = 2\n"


class LinkedSite:
    """A site with a real store and a real link, and no cameras."""

    def __init__(
        self, directory: Path, server: Broker, cameras: str = CAMERA, login: str = ""
    ) -> None:
        self.path = directory / "site.toml"
        if not self.path.exists():
            fleet = f'[fleet]\nservers = ["{server.address}"]\ngroup = "yards"\n{login}'
            self.path.write_text(f'name = "north"\nmodel = "{demo.MODEL}"\n{cameras}{fleet}')
        self.settings = load(self.path)
        assert self.settings.fleet is not None
        self.data = self.settings.data
        self.store = Store(self.data / FILE_NAME, ["fleet"])
        self.restarts = 0
        parts = PageParts(
            *(self.settings, self.store, LiveStatus(), self.store.explanation, lambda *_: None)
        )
        self.link = Link(self.settings, self.settings.fleet, self.path)
        self.stages = self.link.stages(parts, self._restart)
        self.supervisor = Supervisor()
        for stage in self.stages:
            self.supervisor.start(stage)

    def _restart(self) -> None:
        load(self.path)
        self.restarts += 1

    def close(self) -> None:
        assert self.supervisor.stop(self.stages, 3.0) == []
        self.link.close()
        self.store.close()

    def add(self, **changes: Any) -> Record:
        """An event in the store."""
        made = record(version=self.store.next_version(), **changes)
        self.store.change("new", made)
        return made

    @property
    def audit(self) -> list[tuple[str, str]]:
        with closing(Accounts(self.data / ACCOUNTS)) as accounts:
            return [(one.user, one.subject) for one in accounts.audit.entries()]


class Centre:
    """What operators and the page do."""

    def __init__(self, server: Broker, **login: str) -> None:
        self.connection = ConnectionThread(broker_settings([server], **login), "admin")
        self.connection.ask(lambda admin: streams.set_up(admin, StreamSettings()), 10)

    def publish(self, run: Run) -> None:
        async def publish(admin: Connection) -> None:
            await registry.change(admin, "yards", lambda now: registry.for_all(now, run), "anna")

        self.connection.ask(publish, 10)

    def put(self, data: bytes) -> registry.File:
        return self.connection.ask(lambda admin: registry.put(admin, data, "m.safetensors"), 20)

    def ask(self, what: str, id: str = "", within_s: float = 2.0 * SLOWER) -> dict[str, Any]:
        question = json.dumps({"what": what, "id": id}).encode()
        answer = self.connection.ask(
            lambda page: page.request(streams.ask("north"), question, within_s), within_s + 1
        )
        found: dict[str, Any] = json.loads(answer)
        return found

    def status(self) -> Status:
        """What the site says after a look that begins now."""
        first = self._after(time.time())  # of a look that may have begun before
        return self._after(first.at + 1e-6)

    def _after(self, at: float) -> Status:
        """The first status from then on."""
        wait_until(self.looks)
        wait_until(lambda: (last := self.last_status()) is not None and last.at >= at)
        found = self.last_status()
        assert found is not None
        return found

    def last_status(self) -> Status | None:
        last = self.connection.ask(
            lambda page: page.last(streams.STATUS, streams.status("north")), 5
        )
        return None if last is None else decode(Status, last.data, "status")

    def looks(self) -> bool:
        with suppress(UnavailableError):
            return "looked" in self.ask("look", within_s=1.0)
        return False

    def mark(self, marks: dict[str, dict[str, object]]) -> None:
        data = json.dumps(marks).encode()
        self.connection.ask(lambda page: page.publish(streams.marks("north"), data), 5)

    def told(self, *kinds: str) -> list[dict[str, Any]]:
        """Messages of the site of some kinds that wait for the writer, the oldest first."""

        async def read(page: Connection) -> list[dict[str, Any]]:
            messages: list[Any] = []
            async with aclosing(streams.Reader(page, streams.EVENTS, "test")) as reader:
                waiting = await reader.open()
                while len(messages) < waiting:
                    messages += await reader.read()
            return [told for one in messages if (told := json.loads(one.data))["type"] in kinds]

        return self.connection.ask(read, 10)


@pytest.fixture
def centre(server: Broker) -> Iterator[Centre]:
    made = Centre(server)
    yield made
    made.connection.close()


@pytest.fixture
def site(centre: Centre, server: Broker, tmp_path: Path) -> Iterator[LinkedSite]:
    made = LinkedSite(tmp_path, server)
    yield made
    made.close()


def restarted(site: LinkedSite, server: Broker) -> LinkedSite:
    """The same site after a restart."""
    site.close()
    site.__init__(site.path.parent, server)  # type: ignore[misc]
    return site


def demo_run(centre: Centre, **more: Any) -> Run:
    """The model of the demo with its calibration, as files of the fleet."""
    calibration = calibration_path(demo.MODEL)
    return Run(
        model=centre.put(demo.MODEL.read_bytes()),
        calibration=centre.put(calibration.read_bytes()),
        **more,
    )


def test_a_site_says_what_it_runs_and_how_it_is(site: LinkedSite, centre: Centre) -> None:
    status = centre.status()
    assert (status.site, status.group, status.revision) == ("north", "yards", 0)
    assert (status.run.model, status.refused) == (None, None)
    assert status.cameras == {"online": 0, "offline": 0, "unwatched": 0}
    assert len(encode(status)) < streams.MAX_STATUS
    # also with a disk that fails
    site.store.close()
    (site.data / FILE_NAME).unlink()
    (site.data / FILE_NAME).mkdir()
    assert centre.status().alerts.false == 0


@pytest.mark.slow
def test_a_model_and_settings_are_checked_laid_over_and_run(
    site: LinkedSite, centre: Centre, server: Broker
) -> None:
    run = demo_run(centre, settings="[retention]\nevents_days = 3.0\n")
    centre.publish(run)
    assert centre.status().refused is None
    assert site.restarts == 1
    assert run.model is not None
    after = restarted(site, server)
    assert after.settings.model is not None
    assert after.settings.model.read_bytes() == demo.MODEL.read_bytes()
    assert after.settings.retention.events_days == 3.0
    status = centre.status()
    assert (status.run.model, status.run.digest) == (run.model.sha256, run.digest)
    assert after.restarts == 0
    # and back
    centre.publish(Run())
    centre.status()
    assert after.restarts == 1
    before = restarted(after, server)
    assert (before.settings.model, before.settings.retention.events_days) == (demo.MODEL, 30.0)
    assert centre.status().run.model is None


REFUSED = [
    ("[retention]\nevent_days = 3\n", "expected a known key, got 'event_days'"),
    ("[retention]\nevents_days = -1\n", "retention.events_days: expected greater than 0"),
    ("[web]\nport = 1\n", "expected learning, model, pose, retention from the fleet"),
    ('model = "/etc/passwd"\n', "model: expected it as a file of the fleet"),
    ("[retention\n", "(at line 1, column 11)"),
]


@pytest.mark.slow
def test_what_does_not_fit_is_refused_in_words(site: LinkedSite, centre: Centre) -> None:
    model = centre.put(demo.MODEL.read_bytes())
    facts = json.loads(calibration_path(demo.MODEL).read_text())
    other = centre.put(json.dumps(facts | {"model_sha256": "0" * 64}).encode())
    for run, words in [
        *((Run(settings=settings), words) for settings, words in REFUSED),
        (Run(model=centre.put(os.urandom(1000))), "model.safetensors: expected"),
        (Run(model=model), "expected a threshold or a calibration"),
        (Run(model=model, calibration=other), "got one of another model"),
    ]:
        centre.publish(run)
        refused = centre.status().refused or ""
        assert words in refused
        assert str(site.data) not in refused
    # what cannot be read leaves the site at work, too
    event = site.add()
    centre.mark({event.id: {"mark": "evil", "at": 1, "by": "anna"}})
    centre.connection.ask(lambda admin: admin.publish(streams.registry("yards"), b"[]"), 5)
    assert "registry of yards: expected" in (centre.status().refused or "")
    assert site.store.reviews() == {}
    assert site.restarts == 0
    data = encode(Rollout(run=Run(settings=OTHER), at=time.time()))
    centre.connection.ask(lambda admin: admin.publish(streams.registry("yards"), data), 5)
    assert centre.status().refused is None
    assert site.restarts == 1


def test_a_model_of_other_joints_is_refused_in_words(
    centre: Centre, server: Broker, tmp_path: Path
) -> None:
    keypoints = np.random.default_rng(1).uniform(0, 100, (30, 5, 2)).astype(np.float32)
    track = Track(1, np.arange(30), keypoints, np.ones((30, 5), np.float32))
    write_clip(Clip("five", 12.5, 30, (track,), unnamed(5)), tmp_path / "five.parquet")
    camera = '[[cameras]]\nname = "door"\nurl = "five.parquet"\nrate = 12.5\n'
    with closing(LinkedSite(tmp_path, server, camera)) as site:
        centre.publish(demo_run(centre))
        assert "expected a model of its joints" in (centre.status().refused or "")
        assert site.restarts == 0


@pytest.mark.slow
def test_what_was_rolled_out_is_ignored_once_the_file_takes_it_no_more(
    site: LinkedSite, centre: Centre, server: Broker
) -> None:
    centre.publish(Run(settings=OTHER))
    centre.status()
    assert restarted(site, server).settings.pose.processes == 2
    text = site.path.read_text()
    site.path.write_text(text.replace("model =", "pose = 3\nmodel ="))
    with pytest.raises(Exception, match="pose"):
        load(site.path)
    rolled_out = site.data / "fleet" / "rollout.json"
    site.path.write_text(text)
    rolled_out.write_text(rolled_out.read_text().replace("processes", "process"))
    assert restarted(site, server).settings.pose.processes is None
    # it is checked and laid over again
    wait_until(lambda: site.restarts == 1)
    assert restarted(site, server).settings.pose.processes == 2


@pytest.mark.slow
def test_an_older_value_is_ignored_but_not_that_of_a_new_registry(
    site: LinkedSite, centre: Centre, server: Broker
) -> None:
    state = site.data / "fleet" / "link.json"
    wait_until(state.exists)
    site.close()
    told = json.loads(state.read_text())
    state.write_text(json.dumps(told | {"revision": 57, "at": time.time() + 60}))
    LinkedSite.__init__(site, site.path.parent, server)
    centre.publish(Run(settings=OTHER))  # with revision 1: an answer of a replica that is behind
    assert centre.status().revision == 57
    assert site.restarts == 0
    site.close()
    state.write_text(json.dumps(told | {"revision": 57, "at": time.time() - 60}))
    LinkedSite.__init__(site, site.path.parent, server)
    assert centre.status().revision == 1
    assert site.restarts == 1


@pytest.mark.slow
def test_files_that_the_group_has_left_behind_are_removed(
    site: LinkedSite, centre: Centre, server: Broker
) -> None:
    centre.publish(Run(model=centre.put(os.urandom(1000))))
    centre.status()
    centre.publish(Run(model=centre.put(os.urandom(1000))))
    centre.status()
    assert len([*(site.data / "fleet").glob("*/")]) == 2  # this and the one before
    centre.publish(demo_run(centre))
    centre.status()
    restarted(site, server)
    centre.publish(Run(settings=OTHER))
    centre.status()
    assert len([*(site.data / "fleet").glob("*/")]) == 1


def test_a_mark_of_the_centre_is_applied_with_its_audit_unless_one_is_later(
    site: LinkedSite, centre: Centre
) -> None:
    event, later, seen, now = site.add(), site.add(number=1), site.add(number=2), time.time()
    site.store.mark(later.id, "right", now, "ben")
    site.store.see(seen.id, now, "ben")  # which is no mark
    entry = {"mark": "normal", "at": now - 1, "by": "anna"}
    centre.mark(dict.fromkeys(["unknown", event.id, later.id, seen.id], entry))
    for _ in range(2):  # the same value again changes nothing
        centre.status()
        reviews = site.store.reviews()
        assert reviews[event.id] == Review("normal", now - 1, "fleet:anna")
        assert reviews[later.id] == Review("right", now, "ben")
        assert reviews[seen.id].mark == "normal"
        assert sorted(site.audit) == sorted(
            ("fleet:anna", f"{one.id}: normal") for one in (event, seen)
        )
        assert [one["id"] for one in centre.told("mark")] == [later.id]  # no other is sent back
    centre.mark({event.id: {"mark": None, "at": now + 1, "by": "ben"}})
    centre.status()
    assert site.store.reviews()[event.id] == Review(None, now + 1, "fleet:ben")


def test_a_site_says_once_at_its_start_which_events_go_on(
    site: LinkedSite, centre: Centre, server: Broker
) -> None:
    centre.status()
    assert [one["open"] for one in centre.told("start")] == [[]]
    event = site.add()
    restarted(site, server)
    centre.status()
    centre.status()
    _, last = centre.told("start")
    assert last["open"] == [event.id]
    assert last["version"] > event.version


def test_marks_made_at_the_site_are_sent_once_and_so_is_what_was_taken_back(
    site: LinkedSite, centre: Centre, server: Broker
) -> None:
    event, seen, now = site.add(), site.add(number=1), time.time()
    site.store.see(seen.id, now, "ben")
    site.store.mark(event.id, "normal", now, "ben")
    centre.status()
    (told,) = centre.told("mark")
    assert told == {
        "type": "mark",
        "site": "north",
        "id": event.id,
        "mark": "normal",
        "at": now,
        "by": "ben",
        "start_time": event.start_time,
        "schema": 1,
    }
    restarted(site, server)
    centre.status()
    assert len(centre.told("mark")) == 1
    site.store.mark(event.id, None, now + 1, "ben")
    centre.status()
    assert [(one["mark"], one["at"]) for one in centre.told("mark")] == [
        ("normal", now),
        (None, now + 1),
    ]
    # a state that cannot be read keeps no site from its start
    (site.data / "fleet" / "link.json").write_text('{"version": 99}')
    site.store.mark(event.id, "right", now + 2, "ben")
    restarted(site, server)
    centre.status()
    assert [one["mark"] for one in centre.told("mark")][2:] == ["right"]


@pytest.mark.slow
def test_a_site_needs_no_rights_beyond_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passwords = {"admin": "a-secret", "north": "n-secret"}
    for name, password in passwords.items():
        monkeypatch.setenv(f"OF_{name.upper()}", password)
    rights = accounts(Owner(sites={"north": "yards"}, passwords=passwords))
    with broker(tmp_path / "broker", rights) as server:
        centre = Centre(server, user="admin", password="env:OF_ADMIN")
        login = 'user = "north"\npassword = "env:OF_NORTH"\n'
        site = LinkedSite(tmp_path, server, login=login)
        event, now = site.add(), time.time()
        site.store.put_poses(event.id, b"poses")
        site.store.mark(event.id, "right", now - 1, "ben")
        assert centre.status().refused is None
        assert [one["mark"] for one in centre.told("mark")] == ["right"]
        centre.mark({event.id: {"mark": "normal", "at": now, "by": "anna"}})
        centre.publish(demo_run(centre))
        assert centre.status().refused is None
        assert site.restarts == 1
        assert site.store.reviews()[event.id].mark == "normal"
        assert "poses" in centre.ask("poses", event.id)
        site.close()
        centre.connection.close()


def test_the_centre_gets_explanations_and_poses_or_words(site: LinkedSite, centre: Centre) -> None:
    event = site.add()
    site.store.put_explanation(event.id, explanation("an arm"))
    site.store.put_poses(event.id, b"poses")
    wait_until(centre.looks)
    answer = centre.ask("explain", event.id)["explanation"]
    assert from_plain(EventExplanation, answer, "answer") == site.store.explanation(event.id)
    assert base64.b64decode(centre.ask("poses", event.id)["poses"]) == b"poses"
    time.sleep(1.0)
    assert "event x: expected an explanation, got none" in centre.ask("explain", "x")["error"]
    assert centre.ask("poses", "x")["error"] == "event x: expected poses, got none any more"
    assert "what" in centre.ask("shutdown")["error"]
    site.store.put_poses(event.id, bytes(800_000))
    assert "expected at most 900000 bytes" in centre.ask("poses", event.id)["error"]


@pytest.mark.slow
def test_only_a_few_questions_a_second_are_answered_and_none_without_a_reply(
    site: LinkedSite, centre: Centre
) -> None:
    wait_until(centre.looks)
    time.sleep(1.1)
    event = site.add()

    async def flood(page: Connection) -> int:
        subject = streams.ask("north")
        for _ in range(200):
            await page.client.publish(subject, b'{"what": "look"}')
        asked = [page.client.request(subject, b'{"what": "look"}', timeout=2) for _ in range(200)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        return sum(not isinstance(one, Exception) for one in found)

    assert 1 <= centre.connection.ask(flood, 20) <= 10
    time.sleep(1.1)
    site.store.put_poses(event.id, b"poses")
    assert "poses" in centre.ask("poses", event.id)
