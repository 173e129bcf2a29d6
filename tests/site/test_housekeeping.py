"""Overload and drift of cameras, as operators hear of them."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.events.camera import CameraProfile
from stepvad.events.drift import SPAN_BLOCKS, BlockStats
from stepvad.events.rules import ChangeKind, Rules
from stepvad.poses import Clip, Track
from stepvad.site import demo
from stepvad.site.frames import QueuedFrame
from stepvad.site.housekeeping import (
    CLEAR_CHECKS,
    CameraDrift,
    LoadWatch,
    WatchedTime,
    latest_block,
)
from stepvad.site.load import LoadState
from stepvad.site.models import Models
from stepvad.site.pipeline import Pipeline
from stepvad.site.settings.file import load
from stepvad.site.status import LiveStatus
from stepvad.site.store.events import FILE_NAME, Store
from stepvad.web.live import people_of
from tests.site.sites import RATE, one_person, pose_camera, write_site


def played(directory: Path, *, every: int) -> tuple[LiveStatus, list[ChangeKind], set[str]]:
    """Play 40 s through real queues and scoring that takes one frame of `every`.

    Returns the status, the kinds of changes, and what the page says of people.
    """
    clip = one_person(40.0)
    settings = load(write_site(directory, pose_camera("a", clip, directory)))
    now = [0.0]
    status, store = LiveStatus(lambda: now[0]), Store(directory / FILE_NAME)
    pipeline = Pipeline(settings, Models(), status, store)
    status.state("a", "online", "", 0.0)
    reader, said = status.subscribe(), set[str]()
    for slot, poses in clip.by_frame():
        now[0] = slot / clip.rate()
        frame = QueuedFrame(
            camera="a", connection=0, rate=clip.rate(), wall0=1e9, slot=slot, arrived=0.0,
            size=(1280, 720), poses=poses,
        )  # fmt: skip
        pipeline.cameras.frames.put(frame)
        if slot % every == 0:
            pipeline.scorer.score(pipeline.cameras.frames.next(0))
            for shown in reader.take().values():
                sent: dict[str, Any] = people_of(shown, 20.0)
                said |= {one.get("doubt", "") for one in sent["people"]}
    kinds = list[ChangeKind]()
    while (change := pipeline.changes.first(0)) is not None:
        pipeline.changes.done()
        kinds.append(change.kind)
    store.close()
    return status, kinds, said


def test_most_frames_dropped_raise_the_same_events_and_the_camera_is_overloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepvad.site.frames.WAITING", 1)
    (tmp_path / "few").mkdir()
    status, kinds, said = played(tmp_path, every=1)
    camera = status.snapshot().cameras[0]
    events = kinds.count("new")
    assert events >= 4
    assert (camera.load.state, camera.load.words) == ("ok", "")
    assert said == {""}
    status, kinds, said = played(tmp_path / "few", every=5)
    camera = status.snapshot().cameras[0]
    assert kinds.count("new") == events
    assert camera.counts["shed"] > 3 * camera.counts["scored"]
    assert camera.load.words == "overloaded: 4 of 5 frames left out"
    assert said == {""}


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, LoadState]] = []

    def status(self, camera: str, state: str) -> None:
        raise NotImplementedError

    def load(self, camera: str, state: LoadState) -> None:
        self.heard.append((camera, state))


def test_an_overload_is_told_once_and_its_end_after_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    now, heard = [0.0], Heard()
    status = LiveStatus(lambda: now[0])
    status.camera("a", rate=10.0, threshold=3.0, model="m", zones={})
    status.state("a", "online", "", 0.0)
    watch = LoadWatch(status, [heard])

    def pass_seconds(n: int, *, scored: int, shed: int) -> None:
        for _ in range(n):
            now[0] += 1
            status.count("a", "scored", scored)
            status.count("a", "shed", shed)
            watch.report_changes()

    pass_seconds(12, scored=10, shed=0)
    assert heard.heard == []
    pass_seconds(20, scored=0, shed=10)
    assert heard.heard == [("a", "overloaded"), ("a", "not watching")]
    assert "camera a is not watching: " in caplog.text
    assert "lower its rate" in caplog.text
    heard.heard.clear()
    pass_seconds(12 + CLEAR_CHECKS, scored=10, shed=0)
    assert heard.heard[-1] == ("a", "ok")
    assert "camera a is no longer overloaded" in caplog.text


def test_time_is_watched_while_a_camera_is_online_and_judged(tmp_path: Path) -> None:
    now, wall = [100.0], [400_000 * 3600.0 - 30]
    status, store = LiveStatus(lambda: now[0]), Store(tmp_path / FILE_NAME, clock=lambda: wall[0])
    for name in ("a", "lost", "slow"):
        status.camera(name, rate=10.0, threshold=None, model="", zones={})
        status.state(name, "offline" if name == "lost" else "online", "", 0.0)
    watched = WatchedTime(status, store, clock=lambda: now[0], wall=lambda: wall[0])

    def pass_seconds(n: float, every_s: float = 2.0) -> None:
        for _ in range(round(n / every_s)):
            now[0] += every_s
            wall[0] += every_s
            status.count("a", "scored", 20)
            status.count("slow", "shed", 20)
            watched.count()

    pass_seconds(60)
    pass_seconds(600, every_s=600)  # the process was paused
    watched.save()
    watched.save()
    hour = 400_000 * 3600.0
    assert store.watched()["a"] == {hour - 3600: pytest.approx(28), hour: pytest.approx(32)}
    assert set(store.watched()) == {"a", "slow"}
    assert sum(store.watched()["slow"].values()) < 10  # until it was too slow to be judged
    store.close()
    pass_seconds(10)
    watched.save()  # raises nothing: the background has more to do than to try it again
    assert watched._seconds["a", 400_000] == pytest.approx(10)  # the next call stores it


def drifting(status: LiveStatus, stats: dict[str, BlockStats] | None = None) -> CameraDrift:
    loaded = Models().load(demo.MODEL)
    assert loaded.calibration is not None
    status.camera("demo", rate=RATE, threshold=1.0, model="m", zones={})
    profile = CameraProfile(
        camera="demo",
        rate=RATE,
        rules=Rules(threshold=1.0),
        detector=loaded.detector,
        model_id="m",
        model_sha256="0",
        zones={},
    )
    calibration = replace(
        loaded.calibration, block_stats=loaded.calibration.block_stats if stats is None else stats
    )
    return CameraDrift(profile, calibration, status)


def walk(*, upside_down: bool = False) -> Clip:
    clip = one_person(30.0, every_s=1e9, for_s=0.0)
    (track,) = clip.tracks
    keypoints = 1000 - track.keypoints if upside_down else track.keypoints
    turned = Track(1, track.frames, keypoints, track.confidence)
    return Clip("demo", RATE, clip.n_frames, (turned,), clip.skeleton)


def test_a_short_calibration_cannot_tell_a_change() -> None:
    status = LiveStatus()
    one = drifting(status)
    one.add_footage(walk(upside_down=True))
    one.report()
    view = status.snapshot().cameras[0]
    assert not view.drifted
    assert "less than 8 hours with people" in view.drift
    assert "expected at least 8 hours with people, got 0.2" in view.drift_numbers
    drifting(status, {}).report()
    assert "does not describe how people moved" in status.snapshot().cameras[0].drift


def test_a_change_is_told_after_enough_spans_in_a_row(caplog: pytest.LogCaptureFixture) -> None:
    status = LiveStatus()
    known = drifting(status).calibration.block_stats["demo"]
    rng = np.random.default_rng(0)
    days = known.values[rng.integers(len(known), size=24 * 120)]
    one = drifting(status, {"demo": BlockStats(known.names, days)})
    monitor = one.monitor
    assert monitor is not None
    one.report()
    assert (
        "too early to tell: people were compared 0 of 60 times"
        in status.snapshot().cameras[0].drift
    )
    monitor.observe(
        BlockStats(known.names, known.values[rng.integers(len(known), size=SPAN_BLOCKS)])
    )
    one.report()
    assert status.snapshot().cameras[0].drift.startswith("people move as they did when")
    upside_down = walk(upside_down=True)
    for span in range(monitor.needed):
        one.report()
        view = status.snapshot().cameras[0]
        assert not view.drifted
        assert (
            span == 0 or f"for {2 * span} hours; it counts after {2 * monitor.needed}" in view.drift
        )
        for _ in range(SPAN_BLOCKS):
            one.add_footage(upside_down)
    one.report()
    one.report()
    view = status.snapshot().cameras[0]
    assert view.drifted
    assert "then recalibrate" in view.drift
    assert not any(jargon in view.drift for jargon in ("component", "energy", "spread", "σ"))
    assert " then and " in view.drift_numbers
    assert caplog.text.count("people move differently than when the threshold was set") == 1


def test_a_block_is_the_last_half_minute() -> None:
    clip = one_person(40.0)
    block = latest_block(clip)
    assert block.n_frames == 30 * RATE
    assert (block.tracks[0].keypoints == clip.tracks[0].keypoints[-block.n_frames :]).all()
