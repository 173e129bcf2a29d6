"""What may go wrong at a site, and how it goes on. The targets are those of the guide."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from stepvad.live.board import Board
from stepvad.live.lanes import Frame
from stepvad.live.ledger import Entry
from stepvad.live.models import Models
from stepvad.live.pipeline import Pipeline
from stepvad.live.record import Record
from stepvad.live.settings import Settings, load
from stepvad.poses import Pose
from tests.live.sites import (
    RATE,
    Running,
    jumble,
    lines,
    one_person,
    pose_camera,
    video_camera,
    write_networks,
    write_site,
)
from tests.processes import wait_until_nobody_is_left
from tests.video.clips import write_video
from tests.video.servers import RtspServer, has_rtsp_server, wait_until

pytestmark = pytest.mark.slow

SLOWER = float(os.environ.get("STEPVAD_TEST_SLOWER", "1"))
"""By how much a machine that is busy may be slower than the targets."""
GONE_S = float(os.environ.get("STEPVAD_TEST_GONE_S", "3"))
"""How long a camera is away; the target is for 30."""


class Pushed:
    """A pipeline in this process that is fed by hand; cameras have no source of their own."""

    def __init__(self, settings: Settings) -> None:
        self.entries: list[Entry] = []
        self.board = Board()
        epochs = iter(range(1, 1000))
        self.pipeline = Pipeline(
            settings,
            Models(),
            self.board,
            next_epoch=lambda camera: next(epochs),
            announce=self.entries.append,
            recorded=lambda recorder, clip: None,
        )
        self.pipeline.scorer.start()

    def put(
        self, camera: str, number: int, slot: int, poses: list[Pose], *, wall0: float = 1e9
    ) -> None:
        self.pipeline.lanes.put(
            Frame(
                camera=camera,
                number=number,
                connection=0,
                wall0=wall0,
                slot=slot,
                arrived=time.monotonic(),
                size=(1280, 720),
                poses=poses,
            )
        )
        while self.pipeline.lanes.size() > 3:
            time.sleep(0.001)

    def finish(self) -> list[Record]:
        """The events, all over."""
        self.pipeline.scorer.stop()
        return [entry.record for entry in self.entries if entry.kind == "end"]

    def counts(self, camera: str) -> dict[str, int]:
        views = {view.name: view for view in self.board.snapshot().cameras}
        return {str(field): n for field, n in views[camera].counts.items()}


def two_cameras(directory: Path) -> Settings:
    cameras = [pose_camera(name, one_person(20.0), directory) for name in ("a", "b")]
    return load(write_site(directory, *cameras))


def test_frames_twice_and_in_disorder_change_nothing(tmp_path: Path) -> None:
    settings, clip = two_cameras(tmp_path), one_person(40.0)
    frames = [*clip.by_frame()]
    clean = Pushed(settings)
    for slot, poses in frames:
        clean.put("a", slot, slot, poses)
    rng = np.random.default_rng(1)
    order = [*range(len(frames))]
    for at in rng.choice(len(order) - 6, len(order) // 20, replace=False).tolist():
        order.insert(at + int(rng.integers(1, 6)), order.pop(at))
    for at in rng.choice(len(order), len(order) // 20, replace=False).tolist():
        order.insert(at, order[at])
    messy = Pushed(settings)
    for slot in order:
        messy.put("a", slot, *frames[slot])
    expected, found = clean.finish(), messy.finish()
    assert len(expected) >= 4
    assert found == expected
    assert messy.counts("a")["skipped"] == len(order) - len(frames)
    assert messy.counts("a")["windows"] == clean.counts("a")["windows"]


def test_a_clock_that_is_moved_changes_no_score_and_no_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, clip = two_cameras(tmp_path), one_person(40.0)
    usual, moved = Pushed(settings), Pushed(settings)
    for slot, poses in clip.by_frame():
        usual.put("a", slot, slot, poses)
    real = time.time
    for slot, poses in clip.by_frame():
        if slot == 200:
            monkeypatch.setattr(time, "time", lambda: real() - 3600)
        moved.put("a", slot, slot, poses)
    assert moved.finish() == usual.finish()


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
    states = {view.name: (view.state, view.reason) for view in pushed.board.snapshot().cameras}
    for name in ("cut", "nan", "joints"):
        assert states[name][0] == "failed", states
        assert states[name][1], "a reason is told"
    wrong = Pose(1, np.zeros((5, 2), np.float32), np.zeros(5, np.float32))
    for slot, poses in clip.by_frame():
        pushed.put("good", slot, slot, [*poses, wrong] if slot % 7 == 0 else poses)
    ended = pushed.finish()
    assert len(ended) >= 2
    assert pushed.counts("good")["scored"] == clip.n_frames
    assert pushed.counts("good")["skipped"] == len(range(0, clip.n_frames, 7))


def test_twice_too_much_is_shed_and_counted_and_memory_stays(tmp_path: Path) -> None:
    """Scoring is made so slow that it gets through half of what comes."""
    pushed = Pushed(two_cameras(tmp_path))
    scorer, step = pushed.pipeline.scorer, pushed.pipeline.scorer.step

    def slow(items: list[tuple[str, Frame]]) -> None:
        time.sleep(0.008 * len(items))
        step(items)

    scorer.step = slow  # type: ignore[assignment,method-assign]
    person = jumble()
    began, number, latest = time.monotonic(), 0, 0
    while time.monotonic() - began < 6.0:
        for camera in ("a", "b"):
            pushed.pipeline.lanes.put(
                Frame(
                    camera=camera,
                    number=number,
                    connection=0,
                    wall0=1e9,
                    slot=number,
                    arrived=time.monotonic(),
                    size=(1280, 720),
                    poses=[Pose(1, person, np.ones(17, np.float32))],
                )
            )
        number += 1
        latest = max(latest, pushed.pipeline.lanes.size())
        time.sleep(0.004)
    pushed.finish()
    for camera in ("a", "b"):
        counts = pushed.counts(camera)
        assert counts["shed"] > number / 5
        assert counts["scored"] + counts["shed"] == number
    assert latest <= 2 * (8 + 1)
    for view in pushed.board.snapshot().cameras:
        (p99,) = view.latency.quantiles(0.99)
        assert p99 is not None
        assert p99 < 2.0 * SLOWER


def test_a_full_disk_drops_recorded_poses_first_and_loses_no_event(tmp_path: Path) -> None:
    camera = pose_camera("door", one_person(), tmp_path)
    with Running(write_site(tmp_path, camera)) as running:
        running.wait_for_events(1)
        poses = running.data / "poses" / "door"
        poses.mkdir(parents=True)
        for number in range(20):
            (poses / f"door-{number:02}.parquet").write_bytes(b"x")
        before = len(running.events())
        _room(running, 16 * 1024)
        wait_until(lambda: "could not be stored" in running.log.read_text(), 60 * SLOWER)
        wait_until(lambda: len([*poses.glob("*.parquet")]) < 20, 20 * SLOWER)
        _room(running, resource.RLIM_INFINITY)
        wait_until(lambda: "events are stored again" in running.log.read_text(), 60 * SLOWER)
        running.wait_for_events(before + 1)
        assert running.stop() == 0
        events = running.events()
        assert all(not record.is_open for record in events)
        slots = sorted(record.frame_seq for record in events)
        period = 9.5 * RATE
        assert all(abs(b - a - period) < RATE for a, b in pairwise(slots))


def _room(running: Running, most_bytes: int) -> None:
    """Let no file of a site grow beyond this, as a full disk does."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(running.processes()["site"], resource.RLIMIT_FSIZE, (most_bytes, hard))


@pytest.mark.skipif(not has_rtsp_server(), reason="needs GStreamer's RTSP server")
def test_a_camera_that_goes_away_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks = write_networks(tmp_path)
    clip = write_video(tmp_path / "source.mkv", codec="libx264", n_frames=200)
    server = RtspServer(clip, tmp_path / "rtsp.log")
    user, address = server.address.removeprefix("rtsp://").split("@")
    monkeypatch.setenv("TEST_CAMERA", user)
    camera = (
        f'[[cameras]]\nname = "gate"\nurl = "rtsp://{address}"\n'
        'credentials = "env:TEST_CAMERA"\nrate = 10.0\nthreshold = 20.0\n'
    )
    other = pose_camera("door", one_person(), tmp_path)
    server.start()
    try:
        with Running(write_site(tmp_path, camera, other, networks)) as running:
            wait_until(lambda: any(r.camera == "gate" for r in running.events()), 60 * SLOWER)
            gone = time.monotonic()
            server.kill()
            wait_until(lambda: "camera gate is offline" in running.log.read_text(), 60 * SLOWER)
            assert time.monotonic() - gone <= 5.0 * SLOWER
            wait_until(lambda: not _of(running, "gate")[0].is_open, 5 * SLOWER)
            assert _of(running, "gate")[0].ended_by == "camera lost"
            time.sleep(max(GONE_S - (time.monotonic() - gone), 0))
            server.start()
            wait_until(lambda: len(_of(running, "gate")) == 2, 20 * SLOWER)
            first, second = _of(running, "gate")
            assert second.epoch > first.epoch
            assert second.frame_seq >= 11  # a whole window of the new connection
            assert second.start_time >= (first.end_time or 0) + GONE_S - 1
            door = _of(running, "door")
            assert len({record.epoch for record in door}) == 1, "the other camera did not notice"
            assert running.stop() == 0
            assert all(not record.is_open for record in running.events())
            assert user.split(":")[1] not in running.log.read_text()
    finally:
        server.kill()


def _of(running: Running, camera: str) -> list[Record]:
    return [record for record in running.events() if record.camera == camera]


SIGNS = {
    "site": "watches 4 cameras",
    "capture-left": "camera left is online",
    "capture-right": "camera right is online",
}
"""What the log says when somebody is at work."""


def _signs(running: Running, victim: str) -> int:
    return running.log.read_text().count(SIGNS.get(victim, "started again"))


def _is_back(running: Running, victim: str, said: int) -> bool:
    return victim in running.processes() and _signs(running, victim) > said


def _has_more(running: Running, known: set[str]) -> bool:
    return any(record.id not in known for record in running.events())


def _wait_for(running: Running, victim: str) -> None:
    wait_until(lambda: victim in running.processes(), 20 * SLOWER)


def test_any_process_may_be_killed_under_load(tmp_path: Path) -> None:
    """Every announced event is stored, every event ends, and the site is back soon."""
    networks = write_networks(tmp_path)
    told = tmp_path / "told.jsonl"
    cameras = [
        *(pose_camera(name, one_person(), tmp_path) for name in ("a", "b")),
        *(video_camera(name, tmp_path) for name in ("left", "right")),
    ]
    sink = f'[sinks.file]\npath = "{told}"\n'
    with Running(write_site(tmp_path, *cameras, networks, sink)) as running:
        running.wait_for_events(4, 120 * SLOWER)
        for victim in ("capture-left", "poses-0", "site", "capture-right", "poses-0", "site"):
            _wait_for(running, victim)
            before, said = {r.id for r in running.events()}, _signs(running, victim)
            os.kill(running.processes()[victim], signal.SIGKILL)
            back = wait_until(partial(_is_back, running, victim, said), 20 * SLOWER)
            assert back <= 5.0 * SLOWER, victim
            wait_until(partial(_has_more, running, before), 30 * SLOWER)
        site = running.processes()["site"]
        running.process.kill()  # without its supervisor the site ends in order
        wait_until_nobody_is_left(site)
        events = {record.id: record for record in running.events()}
        assert all(not record.is_open for record in events.values())
        announced = [(m["type"], m["after"]["id"]) for m in lines(told)]  # type: ignore[index]
        assert {id for _, id in announced} <= events.keys()
        of: dict[str, Counter[str]] = {}
        for kind, id in announced:
            of.setdefault(str(id), Counter())[str(kind)] += 1
        assert of.keys() == events.keys()
        assert all(kinds["new"] >= 1 and kinds["end"] >= 1 for kinds in of.values())
