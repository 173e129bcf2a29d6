"""Poses that are recorded: files to fit on, of limited age and size."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad.errors import DataError, StepvadError
from stepvad.formats import read_clips, tracks
from stepvad.poses import Clip
from stepvad.site import recorder
from stepvad.site.recorder import Recorder
from tests.disks import small_disk
from tests.site.sites import RATE, one_person

WALL = 1_700_000_000.0
DAY = 86400.0


def record(directory: Path, clip: Clip, *, part_s: float) -> Recorder:
    made = Recorder(directory, "door", RATE, part_s=part_s)
    for slot, poses in clip.by_frame():
        done = made.record(slot, WALL + slot / RATE, poses)
        if done is not None:
            made.save(done)
    last = made.finish()
    assert last is not None
    made.save(last)
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
    assert made.record(0, WALL, []) is None
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


def recordings(directory: Path, n: int, size: int = 100_000) -> list[Path]:
    """Files of one camera, the oldest first."""
    directory.mkdir(parents=True)
    paths = [directory / f"{number}.parquet" for number in range(n)]
    for number, path in enumerate(paths):
        path.write_bytes(b"x" * size)
        os.utime(path, (WALL + number,) * 2)
    return paths


def test_files_stay_while_there_is_room(tmp_path: Path) -> None:
    paths = recordings(tmp_path / "door", 3)
    assert recorder.make_room([tmp_path / "door"]) == []
    assert all(path.exists() for path in paths)
    assert {path.name for path in (tmp_path / "door").iterdir()} == {path.name for path in paths}


def test_the_oldest_files_make_room_on_a_full_disk_and_no_more_than_needed() -> None:
    with small_disk(4) as disk:
        first, second = recordings(disk.path / "door", 8), recordings(disk.path / "gate", 8)
        disk.fill()
        gone = recorder.make_room(disk.path.glob("*/"), 0.25)
        assert gone == [first[0], second[0], first[1]]
        assert recorder.make_room(disk.path.glob("*/"), 0.25) == []
        assert recorder.make_room(disk.path.glob("*/"), 3.0, most=4) == [
            *(second[1], first[2], second[2], first[3])
        ]


def test_nothing_is_raised_where_nothing_can_be_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with small_disk(4) as disk:
        paths = recordings(disk.path / "door", 3)
        disk.fill()
        subprocess.run(["mount", "-o", "remount,ro", disk.path], check=True)
        assert recorder.make_room([disk.path / "door"]) == []
        assert all(path.exists() for path in paths)
        assert "Read-only file system" in caplog.text
    assert recorder.make_room([disk.path / "door"]) == []


def test_a_clip_that_finds_no_room_takes_that_of_the_oldest() -> None:
    with small_disk(4) as disk:
        old = recordings(disk.path / "gate", 8)
        disk.fill()
        record(disk.path, one_person(20.0), part_s=30.0)
        assert [path.exists() for path in old] == [False] * 8
        assert len([*read_clips(disk.path / "door")]) == 1


def test_another_error_than_a_full_disk_deletes_nothing() -> None:
    with small_disk(1) as disk:
        paths = recordings(disk.path / "door", 3)
        assert recorder.is_short(disk.path, recorder.FREE_MB)
        subprocess.run(["mount", "-o", "remount,ro", disk.path], check=True)
        with pytest.raises(StepvadError, match="Read-only"):
            record(disk.path, one_person(5.0), part_s=30.0)
        subprocess.run(["mount", "-o", "remount,rw", disk.path], check=True)
        made = Recorder(disk.path, "door", RATE)
        with pytest.raises(StepvadError, match="No such file"):
            made.save(replace(one_person(5.0), name="a/b"))
        assert all(path.exists() for path in paths)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_quota_is_a_full_disk_behind_any_number_of_causes(number: int) -> None:
    error = StepvadError("cannot be written")
    assert not recorder.ran_out_of_space(error)
    error.__cause__ = StepvadError("cannot be opened")
    error.__cause__.__cause__ = OSError(number, os.strerror(number))
    assert recorder.ran_out_of_space(error)
    assert not recorder.ran_out_of_space(OSError(errno.EROFS, "Read-only file system"))


def test_the_poses_of_an_event_come_back_as_they_were() -> None:
    clip = one_person(3.0)
    again = tracks.from_bytes(tracks.to_bytes(clip))
    assert again.digest() == clip.digest()


def test_the_poses_of_an_event_are_in_no_temporary_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert tracks.from_bytes(tracks.to_bytes(one_person(3.0))).n_poses
    with pytest.raises(DataError, match="poses: expected a Parquet file of tracks, got"):
        tracks.from_bytes(b"not a file")
