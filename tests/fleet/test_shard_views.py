"""A shard with a model of several views: windows, scores and events are those of a quiet site."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.fleet.settings import ModelSettings
from stepvad.fleet.worker.models import FleetModels
from stepvad.poses import Clip
from stepvad.windows.values import Windows
from tests.fleet.fleets import script
from tests.fleet.quiet import assert_same, digests, quiet
from tests.fleet.test_shard import deliveries, feed, heard, interleaved, shard_of

SMALL = Config(K=12, width=16, max_steps=8, ema_warmup=True, clock=True)
THRESHOLD = 2.0


@pytest.fixture(scope="module")
def model(scenes: list[Clip], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Poses, motion and place, fitted in a second."""
    path = tmp_path_factory.mktemp("views") / "several.safetensors"
    config = SMALL.with_views(("pose", "motion", "place"), 25.0)
    Detector.fit(scenes, config).save(path)
    return path


@pytest.mark.parametrize("frames", [1, 7])
def test_every_view_has_the_bits_of_a_site(
    model: Path, scenes: list[Clip], cut_by_stream: list[Windows], frames: int
) -> None:
    scripts = [script(f"s{i}/cam", clip, frames=frames) for i, clip in enumerate(scenes[:4])]
    expected = quiet(scripts, model=model, threshold=THRESHOLD)
    cut_by_stream.clear()
    shard = shard_of(FleetModels.load([ModelSettings(model=model, threshold=THRESHOLD)]))
    feed(shard, deliveries(interleaved(scripts)))
    joined = [windows for windows in cut_by_stream if windows.views]
    assert {d for windows in joined for d in digests(windows)} == expected.windows
    assert sum(len(windows) for windows in joined) == len(expected.windows)
    assert expected.changes, "no event to compare"
    assert_same(heard(shard.changes), expected)
