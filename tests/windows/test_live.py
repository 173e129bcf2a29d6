"""Windows of many cameras at once are those of a stream of each, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.config import Reference
from stepvad.detector import Detector
from stepvad.errors import ConfigError
from stepvad.evaluation.walkers import make_clips
from stepvad.poses import Pose
from stepvad.stream import Stream
from stepvad.windows.live import WindowAssembler
from stepvad.windows.views import ViewSettings, Windows
from tests.tracks import with_config

Row = tuple[int, int, int, bytes, float, float, int]


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


def rows(camera: int, windows: Windows, arrival: list[int]) -> list[Row]:
    columns = windows.track_id, windows.frame, windows.x, windows.c, windows.seen
    return [
        (camera, int(track), int(frame), x.tobytes(), float(c), float(seen), at)
        for track, frame, x, c, seen, at in zip(*columns, arrival, strict=True)
    ]


@pytest.mark.ci
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("splits", [False, True])
def test_it_has_the_windows_of_streams_bit_for_bit(
    small_model: Detector, seed: int, *, splits: bool
) -> None:
    config = replace(small_model.config, split_jumps=splits)
    small_model = with_config(small_model, config)
    frames = frames_of(seed, 3, small_model.config.T)
    expected: list[Row] = []
    duplicates = 0
    for camera, some in frames.items():
        stream = Stream(small_model)
        for slot, poses in some:
            windows = stream.push(slot, poses)
            expected += rows(camera, windows, [slot] * len(windows))
        duplicates += stream.duplicate_poses
    rng = np.random.default_rng(seed)
    assembler = WindowAssembler(small_model.view_settings, small_model.skeleton)
    found: list[Row] = []
    while any(frames.values()):
        taken = [
            (camera, slot, pose)
            for camera in frames
            for slot, poses in [
                frames[camera].pop(0) for _ in range(int(rng.integers(0, 40))) if frames[camera]
            ]
            for pose in poses
        ]
        if not taken:
            continue
        number, at = (np.array([row[i] for row in taken]) for i in (0, 1))
        people = (
            np.array([pose.track_id for _, _, pose in taken]),
            np.array([pose.keypoints for _, _, pose in taken]),
            np.array([pose.confidence for _, _, pose in taken]),
        )
        if rng.random() < 0.5:  # what is taken back, at any point, leaves no trace
            mark = assembler.mark()
            for _ in islice(assembler.push(number, at, *people), int(rng.integers(0, 3))):
                pass
            assembler.undo(mark)
        for windows, of in assembler.push(number, at, *people):
            for i in range(3):
                mine = np.flatnonzero(number[of] == i)
                found += rows(i, windows.part(mine), at[of][mine].tolist())
    assert len(expected) > 300
    assert sorted(found) == sorted(expected)
    assert assembler.duplicate_poses == duplicates > 0


@pytest.mark.parametrize(("people", "frames"), [(200, 1), (1, 90)])
def test_windows_are_cut_from_the_buffers_as_they_grew(
    small_model: Detector, people: int, frames: int
) -> None:
    """More people than there is room for, or more frames at once, after windows were cut."""
    T = small_model.config.T
    track = max((t for clip, _ in make_clips(2, seed=1) for t in clip.tracks), key=len)
    parts = [np.mgrid[:T, :1].reshape(2, -1)]
    for end in range(T, T + 3 * frames, frames):
        parts.append(np.mgrid[end : end + frames, :people].reshape(2, -1))

    def windows_of(pushes: list[NDArray[np.int64]]) -> set[tuple[int, int, bytes]]:
        assembler = WindowAssembler(small_model.view_settings, small_model.skeleton)
        found = set()
        for slot, person in pushes:
            at = (slot + person) % len(track)
            poses = track.keypoints[at], track.confidence[at]
            for windows, _ in assembler.push(np.zeros_like(slot), slot, person, *poses):
                columns = windows.track_id, windows.frame, windows.x
                found |= {(int(i), int(f), x.tobytes()) for i, f, x in zip(*columns, strict=True)}
        return found

    assert windows_of(parts) == windows_of([np.concatenate(parts, axis=1)])


def test_it_forgets_cameras_and_people_who_left(small_model: Detector) -> None:
    assembler = WindowAssembler(small_model.view_settings, small_model.skeleton)
    one = np.ones((1, 17, 2), np.float32)
    for frame in range(3000):
        person = np.array([frame // 2])
        assert not [*assembler.push(np.array([5]), np.array([frame]), person, one, one[..., 0])]
    assert len(assembler) < 200
    assembler.forget(5)
    assert len(assembler) == 0
    person = np.array([2999 // 2])
    assert not [*assembler.push(np.array([5]), np.array([3000]), person, one, one[..., 0])]


def test_a_model_that_needs_the_end_of_a_track_is_refused(small_model: Detector) -> None:
    config = replace(small_model.config, reference=Reference(drop_last_window=True))
    with pytest.raises(ConfigError, match="drop_last_window: expected False for a stream"):
        WindowAssembler([ViewSettings(config)], small_model.skeleton)
