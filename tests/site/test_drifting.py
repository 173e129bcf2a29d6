"""What a site says of a camera that no longer looks as it did at its calibration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stepvad.calibration.drift import BlockStats
from stepvad.calibration.drift_monitor import SPAN_LOOKS
from stepvad.incidents.camera_events import CameraProfile
from stepvad.incidents.events import Rules
from stepvad.intake import demo
from stepvad.intake.models import Models
from stepvad.intake.status import LiveStatus
from stepvad.poses import Clip, Track
from stepvad.site.drifting import CameraDrift, latest_block
from tests.site.sites import RATE, one_person


def drifting(status: LiveStatus, looks: dict[str, BlockStats] | None = None) -> CameraDrift:
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
        loaded.calibration, looks=loaded.calibration.looks if looks is None else looks
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
    one.add(walk(upside_down=True))
    one.tell()
    view = status.snapshot().cameras[0]
    assert not view.drifted
    assert "less than 8 hours with people" in view.drift
    assert "expected at least 8 hours with people, got 0.2" in view.drift_numbers
    drifting(status, {}).tell()
    assert "does not describe how people moved" in status.snapshot().cameras[0].drift


def test_a_change_is_told_after_enough_spans_in_a_row(caplog: pytest.LogCaptureFixture) -> None:
    status = LiveStatus()
    known = drifting(status).calibration.looks["demo"]
    rng = np.random.default_rng(0)
    days = known.values[rng.integers(len(known), size=24 * 120)]
    one = drifting(status, {"demo": BlockStats(known.names, days)})
    monitor = one.monitor
    assert monitor is not None
    one.tell()
    assert (
        "too early to tell: people were compared 0 of 60 times"
        in status.snapshot().cameras[0].drift
    )
    monitor.add(BlockStats(known.names, known.values[rng.integers(len(known), size=SPAN_LOOKS)]))
    one.tell()
    assert status.snapshot().cameras[0].drift.startswith("people move as they did when")
    upside_down = walk(upside_down=True)
    for span in range(monitor.needed):
        one.tell()
        view = status.snapshot().cameras[0]
        assert not view.drifted
        assert (
            span == 0 or f"for {2 * span} hours; it counts after {2 * monitor.needed}" in view.drift
        )
        for _ in range(SPAN_LOOKS):
            one.add(upside_down)
    one.tell()
    one.tell()
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
