"""Fewer frames per second: the right ones, numbered by the clock."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from stepvad.progress import Progress
from stepvad.video.extract import ExtractionOptions, extract_file
from stepvad.video.parts import Parts
from stepvad.video.source import Frame, VideoFile
from stepvad.video.thinning import at_rate
from tests.video.clips import write_images
from tests.video.test_following import Scene, standing


def frame(number: int, pts: float | None, *, wall: float = 0.0, epoch: int = 0) -> Frame:
    return Frame("door", number, pts, wall, np.zeros((1, 1, 3), np.uint8), epoch)


def times(fps: float, n: int) -> list[Frame]:
    return [frame(at, at / fps) for at in range(n)]


def test_every_second_frame() -> None:
    taken = list(at_rate(times(10, 7), 5))
    assert [one.pts for one in taken] == [0, 0.2, 0.4, 0.6]
    assert [one.number for one in taken] == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(3))
def test_jitter_takes_the_same_frames(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frames = [frame(at, 7 + at / 30 + float(rng.uniform(-0.008, 0.008))) for at in range(300)]
    taken = list(at_rate(frames, 10))
    assert [one.number for one in taken] == list(range(100))


def test_an_odd_ratio_keeps_time() -> None:
    taken = list(at_rate(times(25, 250), 10))
    apart = [one.number / 10 - (one.pts or 0) for one in taken]
    assert max(map(abs, apart)) <= 1 / 25
    assert len(taken) == 100


def test_frames_that_a_camera_lost_are_missing_numbers() -> None:
    taken = list(at_rate([one for one in times(10, 40) if not 10 <= one.number < 20], 5))
    assert [one.number for one in taken] == [*range(5), *range(10, 20)]


def test_without_stream_time_the_rate_or_the_clock_counts() -> None:
    assert [one.number for one in at_rate([frame(at, None) for at in range(6)], 5, 10)] == [0, 1, 2]
    walls = [frame(at, None, wall=100 + at / 10) for at in range(6)]
    assert [one.number for one in at_rate(walls, 5)] == [0, 1, 2]


def test_numbers_go_on_after_a_lost_connection() -> None:
    again = [frame(at, 500 + at / 10, epoch=1) for at in range(4)]
    assert [one.number for one in at_rate([*times(10, 4), *again], 5)] == [0, 1, 2, 3]


def test_an_extraction_at_a_lower_rate(tmp_path: Path) -> None:
    """Poses of every second frame, at half the rate; a stopped one goes on to the same poses."""
    n = 20
    images = np.arange(n, dtype=np.uint8)[:, None, None, None] * np.ones((64, 64, 3), np.uint8)
    path = write_images(tmp_path / "a.mkv", images)
    scene = Scene([[standing(100.0 + at)] for at in range(256)], [[0]] * 256)

    def extracted(name: str, rate: float, end: int = n + 1) -> list[int] | None:
        stop = threading.Event()

        def report(now: Progress) -> None:
            if now.done >= end:
                stop.set()

        options = ExtractionOptions(rate=rate, stop=stop, report=report)
        with Parts(tmp_path / name, {}) as parts:
            found = extract_file(VideoFile(path), scene, parts, options)
        if found is None:
            return None
        assert found.clip.fps == min(rate, 10)
        (track,) = found.clip.tracks
        return track.frames.tolist()

    assert extracted("half", 5.0) == list(range(10))
    assert extracted("all", 30.0) == list(range(n))
    assert extracted("cut", 5.0, end=7) is None
    assert extracted("cut", 5.0) == list(range(10))
