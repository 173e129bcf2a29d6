"""A shard of cameras whose poses have more joints than its model reads, or fewer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.fleet.settings import ModelSettings
from stepvad.fleet.worker.models import FleetModels
from stepvad.poses import Clip, Track
from stepvad.skeletons import (
    BODY25,
    COCO17,
    HALPE26,
    MEDIAPIPE33,
    WHOLEBODY133,
    Skeleton,
)
from stepvad.windows.values import Windows
from tests.fleet.fleets import Script, script
from tests.fleet.quiet import digests
from tests.fleet.test_shard import deliveries, feed, heard, interleaved, models, shard_of, step

__all__ = ["models"]
SMALL = Config(K=12, width=16, max_steps=8)


def grown(clip: Clip, skeleton: Skeleton) -> Clip:
    """The clip with COCO-17's joints where they were, and other joints anywhere."""
    rng = np.random.default_rng(5)
    at = [skeleton.joints.index(joint) for joint in COCO17.joints]

    def with_more(track: Track) -> Track:
        n = len(track.frames)
        keypoints = rng.uniform(50, 400, (n, skeleton.V, 2)).astype(np.float32)
        confidence = rng.uniform(0.1, 1, (n, skeleton.V)).astype(np.float32)
        keypoints[:, at], confidence[:, at] = track.keypoints, track.confidence
        return Track(track.id, track.frames, keypoints, confidence)

    return replace(clip, tracks=tuple(map(with_more, clip.tracks)), skeleton=skeleton)


def sent_as(clip: Clip, at: int) -> Script:
    return script(f"s{at}/cam", clip, frames=5)


@pytest.mark.parametrize("skeleton", [HALPE26, BODY25, WHOLEBODY133, MEDIAPIPE33])
def test_scores_of_poses_with_more_joints_have_the_bits_of_coco17(
    models: FleetModels, scenes: list[Clip], cut_by_stream: list[Windows], skeleton: Skeleton
) -> None:
    def run(clips: list[Clip]) -> tuple[list[Any], list[str]]:
        cut_by_stream.clear()
        shard = shard_of(models)
        feed(shard, deliveries(interleaved([sent_as(clip, i) for i, clip in enumerate(clips)])))
        assert (shard.dead, shard.scorer.counts.failed) == ([], 0)
        told = [
            (one.after.id, one.after.score, one.after.top_score)
            for one in heard(shard.changes).told
        ]
        return told, [digest for windows in cut_by_stream for digest in digests(windows)]

    coco17 = run(scenes)
    assert coco17[0], "no event to compare"
    assert run([grown(clip, skeleton) for clip in scenes]) == coco17


def test_poses_that_lack_joints_of_the_model_are_refused_with_their_names(
    scenes: list[Clip], tmp_path: Path
) -> None:
    path = tmp_path / "halpe.safetensors"
    Detector.fit([grown(scenes[0], HALPE26)], SMALL).save(path)
    shard = shard_of(FleetModels.load([ModelSettings(model=path, threshold=1.0)]))
    sent = interleaved([sent_as(scenes[0], 0), sent_as(grown(scenes[1], HALPE26), 1)])
    feed(shard, deliveries(sent))
    for _ in range(3):
        step(shard, [])
    assert {dead.problem for dead in shard.dead} == {
        "poses: expected the joints of halpe26, got coco17 without head, neck, hip"
    }
    assert shard.scorer.counts.frames == scenes[1].n_frames
