"""What the measuring scripts share."""

from __future__ import annotations

import os
import subprocess
import time
from mmap import mmap
from pathlib import Path

import numpy as np
import pytest

from measuring import footage, processes, tables
from tests.site.sites import one_person


def test_half_the_frames_make_half_the_clip() -> None:
    clip = one_person(2.0)
    half = footage.halved(clip)
    assert half.n_frames == (clip.n_frames + 1) // 2
    first, before = half.tracks[0], clip.tracks[0]
    np.testing.assert_array_equal(first.keypoints, before.keypoints[before.frames % 2 == 0])
    assert np.diff(first.frames).max() == 1


def test_a_picture_that_is_turned_keeps_its_lengths_and_turns_by_15_degrees() -> None:
    clip = one_person(2.0)
    before, after = (one.tracks[0].keypoints[0] for one in (clip, footage.rolled(clip)))
    np.testing.assert_allclose(
        np.linalg.norm(after, axis=1), np.linalg.norm(before, axis=1), rtol=1e-5
    )
    turned = np.degrees(np.arctan2(*after.T[::-1]) - np.arctan2(*before.T[::-1]))
    np.testing.assert_allclose(turned, 15.0, atol=1e-3)


def test_work_and_memory_of_a_process_are_counted() -> None:
    before, start = processes.cpu_s(os.getpid()), time.process_time()
    while time.process_time() - start < 0.3:
        pass
    assert 0.2 < processes.cpu_s(os.getpid()) - before < 5
    small = processes.resident_mb(os.getpid())
    block = mmap(-1, 25_000_000)  # the heap may have room of its own
    np.frombuffer(block, np.uint8)[:] = 1
    assert processes.resident_mb(os.getpid()) - small > 20, len(block)
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(OSError, match=str(gone.pid)):
        processes.cpu_s(gone.pid)


def test_a_table_is_read_and_told_in_markdown(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,value\nfast,3\n")
    assert tables.read_rows(tmp_path / "a.csv") == [{"name": "fast", "value": "3"}]
    told = tables.markdown(["name", "value"], [["fast", "3"]], words=[0])
    assert told == "| name | value |\n| --- | --: |\n| fast | 3 |"
