"""Marks on events make exceptions at a running site, wherever they come from; no limit moves."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from stepvad.errors import DataError
from stepvad.events.calibration import Calibration, calibration_path, read_calibration
from stepvad.events.camera import CameraProfile
from stepvad.events.record import Mark, MarkMessage
from stepvad.formats import tracks
from stepvad.poses import Clip
from stepvad.site import demo
from stepvad.site.accounts import Accounts
from stepvad.site.event_writer import TaskQueue
from stepvad.site.frames import FrameQueues, QueuedFrame
from stepvad.site.learning.versions import Amount, Learned
from stepvad.site.marks import MarkFollower, mark_stored
from stepvad.site.models import Limit, Loaded, Models
from stepvad.site.scoring import ScoringQueues, SiteScorer, Watcher
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import RetentionSettings
from stepvad.site.status import LiveStatus
from stepvad.site.store.events import Store
from tests.site.records import record
from tests.site.sites import NO_PAGE, RATE, camera, one_person, write_site

CAMERAS = '[[cameras]]\nname = "door"\nurl = "demo:"\n[[cameras]]\nname = "hall"\nurl = "demo:"\n'


@dataclass
class Site:
    """A site without its stages."""

    follower: MarkFollower
    store: Store
    models: Models
    limits: deque[Limit]

    @property
    def model(self) -> Loaded:
        return self.models.loaded()[0]

    @property
    def calibration(self) -> Calibration:
        assert self.model.calibration is not None
        return self.model.calibration

    def taken(self) -> dict[str, Limit]:
        """The limits on their way to scoring, which takes them."""
        found = {one.camera.name: one for one in self.limits}
        self.limits.clear()
        return found

    def mark(self, id: str, mark: Mark | None, at: float = 1.0) -> None:
        self.store.mark(id, mark, at)
        self.follower.follow()

    def excused(self) -> list[str]:
        """The events whose motion is passed over."""
        return [one.event for one in self.follower.exceptions()]


@pytest.fixture
def site(tmp_path: Path, store: Store) -> Site:
    """Two cameras by a copy of the demo's model."""
    own = tmp_path / "models" / "model.safetensors"
    own.parent.mkdir()
    shutil.copy(demo.MODEL, own)
    shutil.copy(calibration_path(demo.MODEL), calibration_path(own))
    path = write_site(tmp_path, CAMERAS, more=NO_PAGE)
    path.write_text(path.read_text().replace(str(demo.MODEL), str(own)))
    models, limits = Models(), deque[Limit]()
    models.load(own)
    return Site(MarkFollower(load(path), store, models, limits), store, models, limits)


def crouched(seed: int = 0) -> Clip:
    """Another odd motion than a jumble."""
    clip = one_person(8.0, every_s=99.0)
    (track,) = clip.tracks
    keypoints = track.keypoints.copy()
    size = float(np.ptp(keypoints[60], axis=0).max())
    sway = size * np.sin(np.arange(50) / 2)[:, None] * np.linspace(0, 1, 17)
    keypoints[40:90, :, 0] += sway.astype(np.float32)
    keypoints[:40] = keypoints[40]
    noise = np.random.default_rng(seed).normal(0, 0.002 * size, keypoints.shape)
    return replace(clip, tracks=(replace(track, keypoints=(keypoints + noise).astype(np.float32)),))


def alert(site: Site, number: int, clip: Clip, name: str = "door", peak: float = 30.0) -> str:
    """A stored event of a camera, with poses."""
    limit = site.model.rules(name, None).threshold
    one = replace(record(name, number), top_score=peak, tracks=(1,), threshold=limit)
    site.store.change("new", one)
    site.store.change("end", one.ended("calm", one.start_time + 3))
    site.store.put_poses(one.id, tracks.to_bytes(clip))
    return one.id


def test_no_number_of_marks_moves_a_limit(site: Site) -> None:
    """The operator's case: one mark on an alert far above the limit, and alerts not judged."""
    before = {name: site.model.limit(camera(name=name)) for name in ("door", "hall")}
    files = {path: path.read_bytes() for path in site.model.path.parent.iterdir()}
    ids = [alert(site, n, one_person(9.0), peak=73.8) for n in range(12)]
    site.follower.follow()
    assert site.taken() == {}  # not judged: nothing changes
    for at, id in enumerate(ids[:8]):
        site.mark(id, "normal", float(at))
    after = site.taken()
    assert {name: one.rules for name, one in after.items()} == {
        name: one.rules for name, one in before.items()
    }
    assert [one.words for one in after.values()] == [one.words for one in before.values()]
    assert site.excused() == ids[:8][::-1]  # the latest first
    site.follower.follow()
    assert site.taken() == {}  # nothing new was said
    for id in ids[:8]:
        site.mark(id, None)
    assert site.excused() == []
    # what others made is left as it is
    assert {path: path.read_bytes() for path in site.model.path.parent.iterdir()} == files


def test_a_right_alert_takes_an_exception_like_it_away_and_undo_gives_it_back(site: Site) -> None:
    first, second = alert(site, 1, crouched()), alert(site, 2, crouched(seed=1))
    other = alert(site, 3, one_person(9.0))
    site.mark(first, "normal")
    site.mark(other, "normal", 2.0)
    before = site.calibration.exceptions
    assert {*site.excused()} == {first, other}
    site.mark(second, "right", 3.0)
    assert site.excused() == [other]
    site.mark(second, None, 4.0)
    assert site.model.calibration.exceptions == before  # type: ignore[union-attr]


def test_exceptions_of_one_camera_leave_those_of_another(site: Site) -> None:
    here, there = alert(site, 1, one_person(9.0)), alert(site, 2, one_person(9.0), "hall")
    site.mark(here, "normal")
    site.mark(there, "normal")
    assert {*site.excused()} == {here, there}
    site.mark(there, "right")
    assert site.excused() == [here]
    restarted = MarkFollower(site.follower._settings, site.store, Models(), deque())
    restarted._models.load(site.model.path)
    restarted.follow()  # what is in the store is all that it takes
    assert [one.event for one in restarted.exceptions()] == [here]


def test_poses_that_come_after_the_mark_count_and_go_with_their_event(site: Site) -> None:
    one = record("door", 1, tracks=(1,))
    site.store.change("new", one)
    site.mark(one.id, "normal")
    assert site.excused() == []
    site.store.put_poses(one.id, tracks.to_bytes(one_person(9.0)))
    site.follower.follow()
    assert site.excused() == [one.id]
    site.store.delete(ids=[one.id], include_open=True)
    site.follower.follow()
    assert site.excused() == []


def test_poses_of_judged_events_are_kept_as_long_as_their_event(site: Site) -> None:
    both: tuple[Mark, ...] = ("normal", "right")
    judged = {alert(site, n, one_person(3.0)): mark for n, mark in enumerate(both)}
    unjudged = alert(site, 5, one_person(3.0))
    for id, mark in judged.items():
        site.mark(id, mark)
    site.store.retain(RetentionSettings(poses_days=1e-9, events_days=1000.0), now=2000.0 + 86400)
    assert site.store.poses(unjudged) is None
    assert all(site.store.poses(id) for id in judged)


def test_damaged_poses_keep_no_other_mark_from_counting(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [alert(site, n, one_person(9.0)) for n in range(3)]
    site.store.put_poses(ids[0], b"torn")
    empty = replace(one_person(9.0), tracks=())
    site.store.put_poses(ids[1], tracks.to_bytes(empty))
    for id in ids:
        site.mark(id, "normal")
    assert site.excused() == [ids[2]]
    assert f"event {ids[0]}: left out" in caplog.text


def test_the_file_of_a_learned_model_gets_the_exceptions(site: Site) -> None:
    learned = Learned(
        name="a", made=1.0, method="step", footage=Amount(), cameras=("door",), folds={}, until=1.0
    )
    site.models._loaded[site.model.path] = replace(site.model, learned=learned)
    id = alert(site, 1, one_person(9.0))
    site.mark(id, "normal")
    found = read_calibration(calibration_path(site.model.path))
    assert [one.event for one in found.exceptions] == [id]
    assert found.threshold == site.calibration.threshold


def test_what_a_mark_would_do_is_said_before_and_after(site: Site) -> None:
    follower, limit = site.follower, site.model.rules("door", None).threshold
    first, like = alert(site, 1, crouched()), alert(site, 2, crouched(seed=1))
    other, nobody = alert(site, 3, one_person(9.0)), alert(site, 4, replace(crouched(), tracks=()))
    stays = f"imit stays {limit:.1f}"
    found = follower.effect(other, "normal")
    place = "This is usual here. Learned as an exception for this posture at this place"
    assert (found.words, found.said) == (f"{place}; l{stays}.", f"Marked as normal. L{stays}.")
    assert site.excused() == []  # nothing was done
    site.mark(first, "right")
    found = follower.effect(other, "normal")
    assert found.words == f"{place}; l{stays}; 1 right alert is still raised."
    found = follower.effect(like, "normal")
    at = time.strftime("%A, %H:%M", time.localtime(1001.0))
    assert (found.words, found.hides) == ("This would hide 1 right alert.", (first,))
    assert found.said.startswith(
        f"Not passed over: too like the alert of {at}, which you marked right. L{stays}"
    )
    assert "show nothing that could be passed over" in follower.effect(nobody, "normal").words
    assert follower.effect(first, "right").words == (
        "It was worth telling. The limit stays, and no later Normal may hide an alert like this "
        "one."
    )
    assert follower.effect(first, None).said == f"Mark removed. L{stays}."
    with pytest.raises(DataError, match="unknown id"):
        follower.effect("nobody", "normal")


def frames_of(clip: Clip, first: int, connection: int) -> Iterator[QueuedFrame]:
    for slot, poses in clip.by_frame():
        yield QueuedFrame(
            camera="door",
            connection=connection,
            rate=RATE,
            wall0=1e9,
            slot=first + slot,
            arrived=0.0,
            size=(640, 480),
            poses=poses,
            epoch=connection,
        )


def test_a_marked_motion_raises_no_alert_from_the_next_frame_on(site: Site) -> None:
    status, changes = LiveStatus(), site.store.changes
    profile = CameraProfile(
        camera="door",
        rate=RATE,
        rules=site.model.rules("door", None),
        detector=site.model.detector,
        model_id="m",
        model_sha256=site.model.sha256,
        zones={},
    )
    status.camera("door", rate=RATE, threshold=1.0, model="m", zones={})
    watcher = Watcher(profile, lambda: 0)
    queues = ScoringQueues(FrameQueues(["door"], status), changes, TaskQueue(), site.limits)
    scorer = SiteScorer(queues, {"door": watcher}, status)

    clip, began = one_person(9.0), list[int]()
    id = alert(site, 1, clip)
    # the same again and again in two connections: marked after the first time, undone for the last
    marks: tuple[Mark | None, ...] = (None, "normal", "normal", None)
    for number, mark in enumerate(marks):
        site.mark(id, mark, float(number))
        for frame in frames_of(clip, first=200 * number, connection=1 + number // 2):
            scorer.score([("door", frame)])
            while (change := changes.first(0)) is not None:
                began += [number] if change.kind == "new" else []
                changes.done()
    assert began == [0, 3]


def test_a_mark_from_elsewhere_is_audited_and_one_on_an_unknown_event_ignored(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.change("new", record())
    known = record().id
    mark_stored(store, MarkMessage(known, "normal"), "mqtt", tmp_path / "accounts.db")
    mark_stored(store, MarkMessage(known, None), "mqtt", tmp_path / "accounts.db")
    mark_stored(store, MarkMessage("nobody", None), "mqtt", tmp_path / "accounts.db")
    assert "a mark from mqtt is ignored: event nobody" in caplog.text
    with closing(Accounts(tmp_path / "accounts.db")) as accounts:
        found = [(one.user, one.action, one.subject) for one in accounts.audit.entries()]
    words = [f"{known}: taken back", f"{known}: normal"]
    assert found == [("mqtt", "marked event", one) for one in words]
