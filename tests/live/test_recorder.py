"""Poses that are recorded: files to fit on, of limited age and size."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from stepvad.formats import read_clips
from stepvad.live import recorder
from stepvad.live.recorder import Recorder
from stepvad.poses import Clip
from tests.live.sites import RATE, one_person

WALL = 1_700_000_000.0
DAY = 86400.0


def record(directory: Path, clip: Clip, *, part_s: float) -> Recorder:
    made = Recorder(directory, "door", RATE, part_s=part_s)
    for slot, poses in clip.by_frame():
        done = made.add(slot, WALL + slot / RATE, poses)
        if done is not None:
            made.write(done)
    last = made.finish()
    assert last is not None
    made.write(last)
    return made


def test_what_is_recorded_is_what_was_seen_in_parts(tmp_path: Path) -> None:
    clip = one_person(20.0)
    record(tmp_path, clip, part_s=6.0)
    parts = [*read_clips(tmp_path / "door")]
    assert [part.n_frames for part in parts] == [75, 75, 75, 25]
    assert all(part.fps == RATE for part in parts)
    joined = np.concatenate([part.tracks[0].keypoints for part in parts])
    assert np.array_equal(joined, clip.tracks[0].keypoints)


def test_nobody_seen_is_nothing_recorded(tmp_path: Path) -> None:
    made = Recorder(tmp_path, "door", RATE)
    assert made.add(0, WALL, []) is None
    assert made.finish() is None


def test_files_go_when_they_are_old_or_too_many(tmp_path: Path) -> None:
    for name, age, size in (("old", 8, 10), ("first", 2, 600_000), ("second", 1, 600_000)):
        path = tmp_path / "door" / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)
        os.utime(path, (WALL - age * DAY,) * 2)
    assert recorder.retain(tmp_path, days=7, most_mb=2.0, now=WALL) == 1
    assert {path.stem for path in tmp_path.glob("*/*")} == {"first", "second"}
    assert recorder.retain(tmp_path, days=7, most_mb=1.0, now=WALL) == 1
    assert {path.stem for path in tmp_path.glob("*/*")} == {"second"}


def test_the_oldest_file_makes_room(tmp_path: Path) -> None:
    assert recorder.drop_oldest([tmp_path]) is None
    for name, age in (("young", 1), ("old", 2)):
        (tmp_path / f"{name}.parquet").write_bytes(b"x")
        os.utime(tmp_path / f"{name}.parquet", (WALL - age,) * 2)
    assert recorder.drop_oldest([tmp_path]) == tmp_path / "old.parquet"
