"""The timeline shows every peak, whatever it leaves out."""

from __future__ import annotations

import re

import numpy as np
import pytest

from stepvad.model.scoring import WindowScores
from stepvad.report import timeline
from stepvad.report.timeline import BINS, HEIGHT, PlotScale, downsample
from tests.report.pages import read


def scored(track: list[int], frame: list[int], A: list[float]) -> WindowScores:
    n = len(A)
    values = np.array(A, np.float32)
    return WindowScores(
        np.array(track), np.array(frame), np.ones(n, np.float32), values[:, None], values
    )


def crowd(n_tracks: int, n_frames: int) -> WindowScores:
    rng = np.random.default_rng(0)
    tracks = np.repeat(np.arange(n_tracks), n_frames)
    frames = np.tile(np.arange(n_frames), n_tracks)
    A = rng.exponential(size=len(tracks)).astype(np.float32)
    kept = np.flatnonzero(rng.random(len(tracks)) < 0.999)
    return WindowScores(tracks, frames, A, A[:, None], A).part(kept)


def test_each_point_is_the_highest_score_of_its_person_and_part() -> None:
    windows = crowd(3, 5000)
    lines = downsample(windows, 5000, bins=100)
    highest: dict[tuple[int, int], float] = {}
    for track, frame, A in zip(windows.track_id, windows.frame, windows.A, strict=True):
        key = int(track), int(frame) // 50
        highest[key] = max(highest.get(key, -np.inf), float(A))
    given: dict[tuple[int, int], float] = {}
    for track, place, score in zip(lines.track, lines.place, lines.score, strict=True):
        key = int(track), int(place)
        given[key] = max(given.get(key, -np.inf), float(score))
    assert given == highest


def test_lines_end_where_somebody_is_gone() -> None:
    lines = downsample(scored([1, 1, 1, 2], [3, 4, 7, 8], [1.0, 2.0, 3.0, 4.0]), 10)
    assert lines.begins.tolist() == [True, False, True, True]


def test_a_long_clip_of_many_is_light() -> None:
    n_frames = 40_000
    drawn = timeline.draw(
        crowd(20, n_frames), [], n_frames=n_frames, fps=25.0, threshold=3.0, abnormal=None
    )
    assert len(drawn) < 20 * BINS * 30
    paths = [path.attributes["d"] for path in read(drawn).every("path")]
    assert all(path == "" or path.startswith("M") for path in paths)


def test_scores_stay_inside_and_the_threshold_is_where_it_says() -> None:
    scale = PlotScale.fitting(np.array([-2.0, 90.0], np.float32), 100, 4.0)
    assert scale.high == pytest.approx(20.0)
    assert scale.y(90.0) == 0
    assert scale.y(-50.0) == HEIGHT
    drawn = read(
        timeline.draw(
            scored([1, 1], [10, 11], [-2.0, 90.0]),
            [],
            n_frames=100,
            fps=10.0,
            threshold=4.0,
            abnormal=None,
        )
    )
    line = drawn.one("line", kind="threshold")
    assert float(line.attributes["y1"]) == pytest.approx(scale.y(4.0), abs=0.05)
    person = drawn.one("path", kind="person").attributes["d"]
    numbers = [float(n) for n in re.findall("[0-9.]+", person)]
    assert numbers == pytest.approx([1050, scale.y(-2.0), 1150, 0], abs=0.06)


def test_times_are_few_and_round() -> None:
    for seconds in (0.4, 9.0, 61.0, 3600.0, 90_000.0):
        nobody = scored([], [], [])
        drawn = timeline.draw(
            nobody, [], n_frames=round(10 * seconds), fps=10.0, threshold=1.0, abnormal=None
        )
        times = [text.text for text in read(drawn).every("text", kind="time")]
        assert 2 <= len(times) <= timeline.TICKS + 1
        assert times[0].startswith("0:00")
