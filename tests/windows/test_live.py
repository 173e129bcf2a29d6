"""Windows of a stream are those of its finished clip, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from stepvad.detector import Detector
from stepvad.evaluation.walkers import make_clips
from stepvad.poses import Clip, Pose, tracks_of
from stepvad.stream import Stream
from stepvad.windows.runs import cut
from stepvad.windows.views import ViewSettings, Windows
from tests.tracks import with_config

Row = tuple[int, int, bytes, float, float]


def frames_of(seed: int, cameras: int, length: int) -> dict[int, list[tuple[int, list[Pose]]]]:
    """Walkers of whom some are missed now and then, in frames of whom some are shed."""
    rng = np.random.default_rng(seed)
    found = {}
    for camera, (clip, _) in enumerate(make_clips(cameras, seed=seed, seconds=8.0)):
        frames = []
        away = int(rng.integers(30, 60))
        for slot, poses in clip.by_frame():
            if rng.random() < 0.06 or away <= slot < away + length + int(rng.integers(0, 3)):
                continue
            seen = [swapped(pose, rng) for pose in poses if rng.random() < 0.9]
            if seen and rng.random() < 0.05:
                seen.append(Pose(seen[0].track_id, seen[0].keypoints + 1, seen[0].confidence))
            frames.append((slot, seen))
        found[camera] = frames
    return found


def swapped(pose: Pose, rng: np.random.Generator) -> Pose:
    """The pose, or now and then that of somebody far away in its place."""
    away = 2000 * (rng.random() < 0.02)
    return Pose(pose.track_id, pose.keypoints + np.float32(away), pose.confidence)


def rows(parts: Sequence[Windows]) -> list[Row]:
    return sorted(
        (int(track), int(frame), x.tobytes(), float(c), float(seen))
        for part in parts
        for track, frame, x, c, seen in zip(
            *(part.track_id, part.frame, part.x, part.c, part.seen), strict=True
        )
    )


def finished(frames: Sequence[tuple[int, list[Pose]]]) -> Clip:
    """The clip of these frames; of several poses of a person in one of them, the first."""
    found = {(pose.track_id, at): pose for at, poses in frames for pose in reversed(poses)}
    people = tracks_of(
        np.array([track for track, _ in found]),
        np.array([frame for _, frame in found]),
        np.array([pose.keypoints for pose in found.values()]),
        np.array([pose.confidence for pose in found.values()]),
    )
    return Clip("finished", None, 1 + frames[-1][0], people)


@pytest.mark.ci
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("splits", [False, True])
def test_a_stream_has_the_windows_of_the_finished_clip_bit_for_bit(
    small_model: Detector, seed: int, *, splits: bool
) -> None:
    config = replace(small_model.config, split_jumps=splits)
    detector = with_config(small_model, config)
    for frames in frames_of(seed, 3, config.T).values():
        stream = Stream(detector)
        online = [stream.push(slot, poses) for slot, poses in frames]
        whole = cut(finished(frames), [ViewSettings(config)], detector.skeleton)[0]
        expected = rows([whole.windows(slice(None))])
        assert len(expected) > 100
        assert rows(online) == expected
        assert stream.duplicate_poses > 0


def test_a_crowd_that_comes_while_windows_are_cut_gets_all_of_them(small_model: Detector) -> None:
    """More people than there is room for, after windows were cut."""
    T = small_model.config.T
    track = max((t for clip, _ in make_clips(2, seed=1) for t in clip.tracks), key=len)
    frames = [
        (
            slot,
            [
                Pose(person, track.keypoints[at], track.confidence[at])
                for person in range(1 if slot < T else 200)
                for at in [(slot + person) % len(track)]
            ],
        )
        for slot in range(3 * T)
    ]
    stream = Stream(small_model)
    online = [stream.push(slot, poses) for slot, poses in frames]
    whole = cut(finished(frames), small_model.view_settings, small_model.skeleton)[0]
    assert rows(online) == rows([whole.windows(slice(None))])


def test_of_people_who_left_few_are_remembered(small_model: Detector) -> None:
    stream, one = Stream(small_model), np.ones((17, 2), np.float32)
    for frame in range(3000):
        stream.push(frame, [Pose(frame // 2, one, one[:, 0])])
    assert len(stream._tracks) < 200
