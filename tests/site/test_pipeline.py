"""Frames pushed by hand through lanes, scoring and events: disorder, clocks, poison, overload."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.codec import from_plain
from stepvad.events.camera import MOST_PEOPLE
from stepvad.events.record import Record, Search, SinkMessage
from stepvad.explain import event as explanations
from stepvad.poses import Pose
from stepvad.site import event_writer, sinks
from stepvad.site.frames import QueuedFrame
from stepvad.site.models import Models
from stepvad.site.pipeline import Pipeline
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import SiteSettings
from stepvad.site.stages import Supervisor
from stepvad.site.status import LiveStatus
from stepvad.site.store.events import FILE_NAME, Store
from stepvad.site.store.outbox import SinkDelivery
from tests.conftest import Command
from tests.site.notify.services import mail_server, text_of
from tests.site.receivers import web_server
from tests.site.sites import NO_PAGE, RATE, jumble, one_person, pose_camera, write_site
from tests.video.servers import SLOWER, wait_until


def frame(camera: str, slot: int, poses: list[Pose], *, wall0: float) -> QueuedFrame:
    return QueuedFrame(
        camera=camera,
        connection=0,
        rate=RATE,
        wall0=wall0,
        slot=slot,
        arrived=time.monotonic(),
        size=(1280, 720),
        poses=poses,
    )


class Pushed:
    """A pipeline in this process that is fed by hand; cameras have no source of their own."""

    def __init__(self, settings: SiteSettings) -> None:
        self.status = LiveStatus()
        self._supervisor = Supervisor()
        self._directory = tempfile.TemporaryDirectory()
        self._store = Store(Path(self._directory.name) / FILE_NAME, clock=lambda: 1000.0)
        self.pipeline = Pipeline(settings, Models(), self.status, self._store)
        self._supervisor.start(self.pipeline.scorer.stage)

    def put(self, camera: str, slot: int, poses: list[Pose], *, wall0: float = 1e9) -> None:
        self.pipeline.cameras.frames.put(frame(camera, slot, poses, wall0=wall0))
        while self.pipeline.cameras.frames.size() > 3:
            time.sleep(0.001)

    def finish(self) -> list[Record]:
        """The events, all over."""
        assert self._supervisor.stop([self.pipeline.scorer.stage], 20) == []
        ended = []
        while (change := self.pipeline.changes.first(0)) is not None:
            self.pipeline.changes.done()
            if change.kind == "end":
                ended.append(change.record)
        self._store.close()
        self._directory.cleanup()
        return ended

    def counts(self, camera: str) -> dict[str, int]:
        views = {view.name: view for view in self.status.snapshot().cameras}
        return {str(field): n for field, n in views[camera].counts.items()}


def two_cameras(directory: Path) -> SiteSettings:
    cameras = [pose_camera(name, one_person(20.0), directory) for name in ("a", "b")]
    return load(write_site(directory, *cameras))


def test_frames_twice_and_late_change_nothing(tmp_path: Path) -> None:
    settings, clip = two_cameras(tmp_path), one_person(40.0)
    frames = [*clip.by_frame()]
    clean = Pushed(settings)
    for slot, poses in frames:
        clean.put("a", slot, poses)
    rng = np.random.default_rng(1)
    order = [*range(len(frames))]
    for at in rng.choice(len(order) - 6, len(order) // 20, replace=False).tolist():
        order.insert(at + int(rng.integers(1, 6)), order[at])
    messy = Pushed(settings)
    for slot in order:
        messy.put("a", *frames[slot])
    expected, found = clean.finish(), messy.finish()
    assert len(expected) >= 4
    assert found == expected
    assert messy.counts("a")["skipped"] == len(order) - len(frames)
    assert messy.counts("a")["windows"] == clean.counts("a")["windows"]


def test_of_an_overloaded_camera_people_are_judged_by_the_frames_that_are_left(
    tmp_path: Path,
) -> None:
    settings, frames = two_cameras(tmp_path), [*one_person(40.0).by_frame()]
    whole, overloaded = Pushed(settings), Pushed(settings)
    for slot, poses in frames:
        whole.put("a", slot, poses)
        if slot % 5 == 0:
            overloaded.put("a", slot, poses)
    expected, found = whole.finish(), overloaded.finish()
    assert len(expected) == len(found) >= 4
    for one, other in zip(expected, found, strict=True):
        assert abs(one.start_time - other.start_time) < 1.0
    assert [one.doubt for one in found] != [None] * len(found), "it says how much is interpolated"
    assert overloaded.counts("a")["windows"] > 300


def test_whoever_is_missed_in_most_frames_is_not_judged(tmp_path: Path) -> None:
    """Frames that come without the person are no overload, whatever else is dropped."""
    found = Pushed(two_cameras(tmp_path))
    reader, unsure = found.status.subscribe(), dict[int, float]()
    for slot, poses in one_person(40.0).by_frame():
        if slot % 2 == 0:
            found.put("a", slot, poses if slot % 6 == 0 else [])
            for frame in reader.take().values():
                unsure |= frame.muted
    assert found.finish() == []
    assert unsure
    assert found.counts("a")["muted_windows"] > 300


def test_the_poses_of_an_event_are_those_of_everybody_in_view(tmp_path: Path) -> None:
    pushed, calm = Pushed(two_cameras(tmp_path)), [*one_person(20.0, for_s=0.0).by_frame()]
    for slot, poses in one_person(20.0).by_frame():
        other = calm[slot][1][0]
        second = Pose(7, other.keypoints + np.float32(300.0), other.confidence)
        pushed.put("a", slot, [*poses, second])
    pushed._supervisor.stop([pushed.pipeline.scorer.stage], 20)
    seen = []
    while (change := pushed.pipeline.changes.first(0)) is not None:
        pushed.pipeline.changes.done()
        if change.kind == "end" and change.poses is not None:
            assert change.record.tracks == (1,)
            seen.append({track.id for track in change.poses.clip.tracks})
    pushed.finish()
    assert seen
    assert all(people == {1, 7} for people in seen)


def test_an_event_is_explained_soon_and_again_when_its_peak_rises(tmp_path: Path) -> None:
    pushed, rate = Pushed(two_cameras(tmp_path)), 12.5
    clip = one_person(20.0, every_s=20.0, phase_s=17.0, for_s=14.0)  # it begins after 3 s
    worse = jumble() * 3 - 200  # and gets worse after 11 s
    changes, explained = pushed.pipeline.changes, []
    for slot, poses in clip.by_frame():
        if 11 < slot / rate < 14:
            poses = [Pose(1, worse + 40 * (slot % 2), poses[0].confidence)]
        pushed.put("a", slot, poses)
        while (change := changes.first(0)) is not None:
            changes.done()
            if change.poses is not None and change.kind == "update":
                explained.append((slot / rate, change.record.top_score))
    pushed.finish()
    assert 2 <= len(explained) <= 4
    assert explained[0][0] < 3 + 2.5 + 0.5
    assert explained[-1][0] < 16
    assert explained[-1][1] > explained[0][1]


def test_a_clock_that_is_moved_changes_no_score_and_no_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, clip = two_cameras(tmp_path), one_person(40.0)
    usual, moved = Pushed(settings), Pushed(settings)
    for slot, poses in clip.by_frame():
        usual.put("a", slot, poses)
    real = time.time
    for slot, poses in clip.by_frame():
        if slot == 200:
            monkeypatch.setattr(time, "time", lambda: real() - 3600)
        moved.put("a", slot, poses)
    assert moved.finish() == usual.finish()


def test_events_of_a_slow_stream_have_the_time_of_the_clock(tmp_path: Path) -> None:
    pushed, rate = Pushed(two_cameras(tmp_path)), 12.5
    for slot, poses in one_person(40.0).by_frame():
        late_s = 0.25 * slot / rate  # a stream at four fifths of the rate that it states
        pushed.put("a", slot, poses, wall0=1e9 + late_s)
    events = pushed.finish()
    assert len(events) >= 4
    for event in events:
        assert event.start_time - 1e9 == pytest.approx(1.25 * event.frame_seq / rate, abs=0.3)


def test_poison_harms_only_the_camera_that_sent_it(tmp_path: Path) -> None:
    clip = one_person(20.0)
    good = pose_camera("good", clip, tmp_path)
    bad = [pose_camera(name, clip, tmp_path) for name in ("cut", "nan", "joints")]
    settings = write_site(tmp_path, good, *bad)
    whole = (tmp_path / "cut.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    text = (
        settings.read_text()
        .replace("nan.parquet", "nan.json")
        .replace("joints.parquet", "joints.json")
    )
    settings.write_text(text)
    one = '{"1": {"%d": {"keypoints": [%s], "scores": null}}}'
    (tmp_path / "nan.json").write_text(one % (0, ", ".join(["NaN"] * 51)))
    (tmp_path / "joints.json").write_text(one % (0, ", ".join(["1.0"] * 15)))
    pushed = Pushed(load(settings))
    states = {view.name: (view.state, view.reason) for view in pushed.status.snapshot().cameras}
    for name in ("cut", "nan", "joints"):
        assert states[name][0] == "failed", states
        assert states[name][1], "a reason is told"
    wrong = Pose(1, np.zeros((5, 2), np.float32), np.zeros(5, np.float32))
    for slot, poses in clip.by_frame():
        pushed.put("good", slot, [*poses, wrong] if slot % 7 == 0 else poses)
    ended = pushed.finish()
    assert len(ended) >= 2
    assert pushed.counts("good")["scored"] == clip.n_frames
    assert pushed.counts("good")["skipped"] == len(range(0, clip.n_frames, 7))


def test_a_crowd_that_cannot_be_is_left_out(tmp_path: Path) -> None:
    clip = one_person(20.0)
    pushed = Pushed(two_cameras(tmp_path))
    poses = [next(clip.by_frame())[1][0]] * (MOST_PEOPLE + 1)
    pushed.put("a", 0, poses[1:])
    pushed.put("a", 1, poses)
    pushed.finish()
    assert (pushed.counts("a")["scored"], pushed.counts("a")["skipped"]) == (2, 1)


@pytest.mark.slow
def test_twice_too_much_is_shed_and_counted_and_memory_stays(tmp_path: Path) -> None:
    """Scoring is made so slow that it gets through half of what comes."""
    pushed = Pushed(two_cameras(tmp_path))
    scorer, score = pushed.pipeline.scorer, pushed.pipeline.scorer.score

    def slow(items: list[tuple[str, QueuedFrame]]) -> None:
        time.sleep(0.008 * len(items))
        score(items)

    scorer.score = slow  # type: ignore[assignment,method-assign]  # slowed down
    person = jumble()
    began, number, latest = time.monotonic(), 0, 0
    while time.monotonic() - began < 6.0:
        for camera in ("a", "b"):
            pushed.pipeline.cameras.frames.put(
                QueuedFrame(
                    camera=camera,
                    connection=0,
                    rate=RATE,
                    wall0=1e9,
                    slot=number,
                    arrived=time.monotonic(),
                    size=(1280, 720),
                    poses=[Pose(1, person, np.ones(17, np.float32))],
                )
            )
        number += 1
        latest = max(latest, pushed.pipeline.cameras.frames.size())
        time.sleep(0.004)
    pushed.finish()
    for camera in ("a", "b"):
        counts = pushed.counts(camera)
        assert counts["shed"] > number / 5
        assert counts["scored"] + counts["shed"] == number
    assert latest <= 2 * (8 + 1)
    for view in pushed.status.snapshot().cameras:
        p99 = view.latency.p99
        assert p99 is not None
        assert p99 < 2.0 * SLOWER


@pytest.mark.ci
def test_words_that_come_after_the_end_are_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stepvad: Command
) -> None:
    released, explain = threading.Event(), explanations.explain_peak

    def explain_late(*given: Any, **more: Any) -> Any:
        released.wait(30 * SLOWER)
        return explain(*given, **more)

    monkeypatch.setattr(event_writer, "explain_peak", explain_late)
    with web_server() as hook, mail_server() as mail:
        mailto = f"mailto://127.0.0.1:{mail.port}?to=guard@example.org&from=site@example.org"
        monkeypatch.setenv("GUARD", mailto)
        camera = pose_camera("door", one_person(20.0), tmp_path)
        receivers = f"""
[[sinks.webhooks]]
name = "hook"
url = "{hook.address}/"
[[sinks.notify]]
to = ["env:GUARD"]
"""
        settings = load(write_site(tmp_path, camera, receivers, more=NO_PAGE))
        # a site without sources, whose clock stands still: mail waits for the words
        store = Store(settings.data / FILE_NAME, sinks.names(settings.sinks), clock=lambda: 1e9)
        pipeline = Pipeline(settings, Models(), LiveStatus(), store)
        receiving = [
            *sinks.connect(settings, store.sinks),
            *sinks.connect_people(settings, store.sinks, store),
        ]
        stages = [SinkDelivery(store.outbox, sink).stage for sink in receiving]
        supervisor = Supervisor()
        for stage in (*(stage for group, _ in pipeline.way[1:] for stage in group), *stages):
            supervisor.start(stage)
        # one event, which is over before it is explained
        scene = one_person(7.0, every_s=20.0, phase_s=18.5, for_s=1.0)
        for slot, poses in scene.by_frame():
            pipeline.cameras.frames.put(frame("door", slot, poses, wall0=1e9))
            while pipeline.cameras.frames.size() > 3:
                time.sleep(0.001)
        wait_until(lambda: any(not one.is_open for one in store.events()), 20)
        assert [one.why for one in store.events()] == [None]
        assert mail.got == []
        released.set()
        wait_until(lambda: bool(mail.got and store.events()[0].why), 20)
        (event,) = store.events()
        assert event.why == store.explanation(event.id).summary
        wait_until(lambda: store.outbox.counts() == {}, 20)
        told = [from_plain(SinkMessage, json.loads(one.body)["data"], "event") for one in hook.got]
        assert (told[0].type, told[-1].type) == ("new", "update")
        assert told[-1].after == event
        assert not event.is_open
        assert event.why in text_of(mail.got[0]).replace("\n", " ")
        assert store.events(search=Search(words=event.why)) == [event]
        assert event.why in stepvad("events", "list", "-d", settings.data, "--json").out
        for group, within_s in (*pipeline.way[1:], (stages, 5.0)):
            assert supervisor.stop(group, within_s) == []
        assert [text_of(one) for one in mail.got] == [text_of(mail.got[0])]
        store.close()
