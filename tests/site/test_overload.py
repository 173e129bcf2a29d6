"""A site that cannot keep up says so, and makes no event of what it did not see."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from stepvad.incidents.events import ChangeKind
from stepvad.intake.frame_queues import QueuedFrame
from stepvad.intake.load import LoadState
from stepvad.intake.models import Models
from stepvad.intake.status import LiveStatus
from stepvad.settings.file import load
from stepvad.site.housekeeping import CALM_LOOKS, LoadWatch
from stepvad.site.pipeline import Pipeline
from stepvad.site.store.events import FILE_NAME, Store
from stepvad.web.live import people_of
from tests.site.sites import one_person, pose_camera, write_site


def played(directory: Path, *, every: int) -> tuple[LiveStatus, list[ChangeKind], set[str]]:
    """Play 40 s through real queues and scoring that takes one frame of `every`.

    Returns the status, the kinds of changes, and what the page says of people.
    """
    clip = one_person(40.0)
    settings = load(write_site(directory, pose_camera("a", clip, directory)))
    now = [0.0]
    status, store = LiveStatus(lambda: now[0]), Store(directory / FILE_NAME)
    pipeline = Pipeline(settings, Models(), status, store)
    pipeline.frames._max_ready = 1
    status.state("a", "online", "", 0.0)
    reader, said = status.subscribe(), set[str]()
    for slot, poses in clip.by_frame():
        now[0] = slot / clip.rate()
        frame = QueuedFrame(
            camera="a", number=slot, connection=0, wall0=1e9, slot=slot,
            arrived=0.0, size=(1280, 720), poses=poses,
        )  # fmt: skip
        pipeline.frames.put(frame)
        if slot % every == 0:
            pipeline.scorer.step(pipeline.frames.next(0))
            for shown in reader.take().values():
                sent: dict[str, Any] = people_of(shown, 20.0)
                said |= {one.get("doubt", "") for one in sent["people"]}
    kinds = list[ChangeKind]()
    while (change := pipeline.changes.first(0)) is not None:
        pipeline.changes.done()
        kinds.append(change.kind)
    store.close()
    return status, kinds, said


def test_most_frames_dropped_raise_no_event_and_the_camera_is_not_watching(tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    status, kinds, said = played(tmp_path, every=1)
    camera = status.snapshot().cameras[0]
    assert "new" in kinds
    assert (camera.load.state, camera.load.words) == ("ok", "")
    assert said == {""}
    status, kinds, said = played(tmp_path / "few", every=5)
    camera = status.snapshot().cameras[0]
    assert kinds == []
    assert camera.counts["shed"] > 3 * camera.counts["scored"]
    assert camera.load.state == "not watching"
    assert camera.load.words == "not watching: 4 of 5 frames left out"
    assert "not judged: seen in 2 of 10 frames" in said


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, LoadState]] = []

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
            watch.look()

    pass_seconds(12, scored=10, shed=0)
    assert heard.heard == []
    pass_seconds(20, scored=2, shed=8)
    assert heard.heard == [("a", "overloaded"), ("a", "not watching")]
    assert "camera a is not watching: " in caplog.text
    assert "lower its rate" in caplog.text
    heard.heard.clear()
    pass_seconds(12 + CALM_LOOKS, scored=10, shed=0)
    assert heard.heard[-1] == ("a", "ok")
    assert "camera a is no longer overloaded" in caplog.text
