"""Every choice of the protocol against two small clips worked by hand, and on whole data sets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter1d

from stepvad import skeletons
from stepvad.config import Config
from stepvad.errors import DataError, Progress
from stepvad.evaluation.datasets import Dataset, FrameSmoothing, open_dataset
from stepvad.evaluation.metrics import auroc
from stepvad.evaluation.protocol import (
    Evaluation,
    FrameView,
    ScoredClip,
    ScorerName,
    Selection,
    evaluate,
    frame_scores,
    reaggregate,
    score_clips,
    tabulate,
    with_motion,
)
from stepvad.evaluation.trivial import TITLES
from stepvad.evaluation.walkers import make
from stepvad.formats.labels import FrameLabels
from stepvad.model import scoring
from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip
from stepvad.windows import runs
from stepvad.windows.body import Repairs
from stepvad.windows.views import ViewSettings


def scores(name: str, n_frames: int, rows: Iterable[tuple[int, int, float]]) -> Scores:
    """Scores of windows of T = 2 frames given as (track, last frame, A)."""
    track, frame, A = (np.array(column) for column in zip(*rows, strict=True))
    A = A.astype(np.float32)
    per_window = WindowScores(track, frame, np.ones_like(A), A[:, None], A)
    return Scores(name, n_frames, 2, per_window, Repairs(poses=5), 1)


def labels(abnormal: Iterable[int], counted: Iterable[int] | None = None) -> FrameLabels:
    truth = np.array([*abnormal], dtype=np.bool_)
    return FrameLabels(
        truth, np.ones_like(truth) if counted is None else np.array([*counted], dtype=np.bool_)
    )


@pytest.fixture
def clips() -> list[ScoredClip]:
    """Two people in frames 0-3 and 2-4 of one clip; one person in all frames of another.

    Online scores: `- 1 2 4 5 -` and `- 3 0`, of which `_ _ X X _ _` and `_ X _` are abnormal.
    """
    crowd = scores("crowd", 6, [(1, 1, 1), (1, 2, 2), (1, 3, 3), (2, 3, 4), (2, 4, 5)])
    loner = scores("loner", 3, [(7, 1, 3), (7, 2, 0)])
    return [
        ScoredClip(crowd, labels([0, 0, 1, 1, 0, 0]), np.array([1, 1, 2, 2, 1, 0])),
        ScoredClip(loner, labels([0, 1, 0]), np.array([1, 1, 1])),
    ]


def table(clips: list[ScoredClip], *, floor: scoring.Floor = "global") -> Evaluation:
    return tabulate(clips, FrameSmoothing(0.0, 1.0, "scored"), floor=floor)


def test_online_scores_over_all_frames(clips: list[ScoredClip]) -> None:
    row = table(clips).row(smoothed=False)
    # the floor is 0 - 1; abnormal 2 4 3 against normal -1 1 5 -1, -1 0: each loses to the 5 alone
    assert row.auroc == pytest.approx(15 / 18)
    assert row.ap == pytest.approx((1 / 2 + 2 / 3 + 3 / 4) / 3)
    assert row.eer == pytest.approx(1 / 6)
    assert (row.n_frames, row.n_abnormal) == (9, 3)


def test_online_scores_over_covered_frames(clips: list[ScoredClip]) -> None:
    row = table(clips).row(smoothed=False, frames="covered")
    # abnormal 2 4 3 against normal 1 5, 0
    assert row.auroc == pytest.approx(6 / 9)
    assert (row.n_frames, row.n_abnormal) == (6, 3)


def test_online_scores_over_frames_with_one_person(clips: list[ScoredClip]) -> None:
    row = table(clips).row(smoothed=False, frames="one-person")
    # crowd's frames 1 and 4 are normal with 1 and 5; loner's frame 1 abnormal with 3, frame 2 has 0
    assert row.auroc == pytest.approx(2 / 3)
    assert (row.n_frames, row.n_abnormal) == (4, 1)


def test_backtrack_covers_the_first_frames_too(clips: list[ScoredClip]) -> None:
    evaluation = table(clips)
    # crowd: 1 1.5 max(2.5, 4) max(3, 4.5) 5 -, loner: 3 1.5 0; the floor is 0 - 1
    every = evaluation.row(placement="backtrack", smoothed=False)
    # abnormal 4 4.5 1.5 against normal 1 1.5 5 -1, 3 0: 5 + 5 + 3.5 of 18
    assert every.auroc == pytest.approx(13.5 / 18)
    covered = evaluation.row(placement="backtrack", smoothed=False, frames="covered")
    # without the -1: 4 + 4 + 2.5 of 15
    assert covered.auroc == pytest.approx(10.5 / 15)
    assert (covered.n_frames, covered.n_abnormal) == (8, 3)
    alone = evaluation.row(placement="backtrack", smoothed=False, frames="one-person")
    # abnormal 1.5 against normal 1 1.5 5, 3 0
    assert alone.auroc == pytest.approx(2.5 / 5)
    assert (alone.n_frames, alone.n_abnormal) == (6, 1)
    assert evaluation.n_covered == {"latest": 6, "backtrack": 8}


def test_other_placements_can_be_asked_for() -> None:
    loner = replace(scores("loner", 4, [(7, 2, 3), (7, 3, 0)]), T=3)
    clip = ScoredClip(loner, labels([0, 0, 1, 0]), np.ones(4, np.int64))
    evaluation = tabulate([clip], FrameSmoothing(), placements=["center"])
    # T = 3 puts 3 and 0 at frames 1 and 2; the others get the floor, -1; frame 2 is abnormal
    assert evaluation.row(placement="center", smoothed=False).auroc == pytest.approx(2 / 3)
    assert evaluation.n_covered == {"center": 2}


def test_the_floor_is_the_lowest_score_of_all_clips_or_of_each(clips: list[ScoredClip]) -> None:
    late = [replace(clips[0], labels=labels([0, 0, 1, 1, 0, 1])), clips[1]]
    # global: abnormal 2 4 -1, 3 against normal -1 1 5, -1 0
    assert table(late).row(smoothed=False).auroc == pytest.approx(13 / 20)
    # per clip: abnormal 2 4 0, 3 against normal 0 1 5, -1 0
    own = table(late, floor="per_clip").row(smoothed=False)
    assert own.auroc == pytest.approx(14 / 20)
    assert table(late, floor="per_clip").row(smoothed=False, frames="covered").n_frames == 6


def test_frames_that_do_not_count_are_left_out(clips: list[ScoredClip]) -> None:
    split = [replace(clips[0], labels=labels([0, 0, 1, 1, 0, 0], [1, 1, 1, 1, 0, 1])), clips[1]]
    evaluation = table(split)
    assert evaluation.row(smoothed=False).auroc == 1.0  # the 5 is gone
    assert evaluation.row(smoothed=False).n_frames == evaluation.n_counted == 8
    assert evaluation.n_frames == 9
    assert evaluation.row(smoothed=False, frames="covered").n_frames == 5
    assert evaluation.row(smoothed=False, frames="one-person").n_frames == 3
    assert evaluation.n_covered["latest"] == 5


def test_smoothing_weighs_scored_frames_only_and_the_floor_comes_after(
    clips: list[ScoredClip],
) -> None:
    near = np.exp(-(np.arange(7) ** 2) / 2)  # σ = 1
    near[5:] = 0  # a Gaussian is cut at 4 σ

    def mean(at: int, values: dict[int, float], n: int) -> float:
        # scipy mirrors a clip at its edges, so a frame is seen at -1 - frame and 2 n - 1 - frame
        seen = {f: sum(near[d] for d in (abs(f - at), f + 1 + at, 2 * n - 1 - f - at) if d < 7)
                for f in values}  # fmt: skip
        return sum(seen[f] * values[f] for f in values) / sum(seen.values())

    crowd, loner = {1: 1.0, 2: 2.0, 3: 4.0, 4: 5.0}, {1: 3.0, 2: 0.0}
    smoothed = np.array([mean(f, crowd, 6) for f in crowd] + [mean(f, loner, 3) for f in loner])
    abnormal = np.array([0, 1, 1, 0, 1, 0], dtype=np.bool_)
    row = table(clips).row(smoothed=True, frames="covered")
    assert row.auroc == auroc(abnormal, smoothed)
    alone = table(clips).row(smoothed=True, frames="one-person")
    assert alone.auroc == auroc(abnormal[[0, 3, 4, 5]], smoothed[[0, 3, 4, 5]])
    floor = smoothed.min() - 1
    every = np.concatenate([[floor], smoothed[:4], [floor, floor], smoothed[4:]])
    truth = np.array([0, 0, 1, 1, 0, 0, 0, 1, 0], dtype=np.bool_)
    assert table(clips).row(smoothed=True).auroc == auroc(truth, every)


def test_smoothing_after_the_floor_is_the_other_reading(clips: list[ScoredClip]) -> None:
    crowd = gaussian_filter1d(np.array([-1, 1, 2, 4, 5, -1], dtype=np.float32), 1.0)
    loner = gaussian_filter1d(np.array([-1, 3, 0], dtype=np.float32), 1.0)
    truth = np.array([0, 0, 1, 1, 0, 0, 0, 1, 0], dtype=np.bool_)
    expected = auroc(truth, np.concatenate([crowd, loner]))
    other = tabulate(clips, FrameSmoothing(0.0, 1.0))
    assert other.row(smoothed=True).auroc == expected
    assert other.row(smoothed=False) == table(clips).row(smoothed=False)
    # over covered frames the floor has pulled crowd's last frame, the 5, below one of the abnormal
    assert other.row(frames="covered").auroc == pytest.approx(7 / 9)
    assert table(clips).row(frames="covered").auroc == pytest.approx(6 / 9)


def test_a_persons_own_scores_are_smoothed_before_the_worst_is_taken() -> None:
    spike = [(1, frame, 9.0 if frame == 5 else 0.0) for frame in range(1, 10)]
    steady = [(2, frame, 1.0) for frame in range(1, 10)]
    truth = labels([0, 0, 0, 1, 1, 1, 1, 1, 0, 0])
    pair = [ScoredClip(scores("pair", 10, spike + steady), truth, np.full(10, 2))]
    evaluation = tabulate(pair, FrameSmoothing(1.0, 0.0))
    # raw: 9 in frame 5 and 1 elsewhere, so one of five abnormal frames stands out of the ties
    assert evaluation.row(smoothed=False, frames="covered").auroc == pytest.approx(12 / 20)
    # the spike becomes 0.5 2.2 3.6 2.2 0.5, of which three exceed the other person's 1
    assert evaluation.row(smoothed=True, frames="covered").auroc == pytest.approx(16 / 20)
    # were the frames smoothed instead, all five would
    later = tabulate(pair, FrameSmoothing(0.0, 1.0))
    assert later.row(smoothed=True, frames="covered").auroc == 1.0


def test_raw_rows_are_not_smoothed_at_all(clips: list[ScoredClip]) -> None:
    plain = tabulate(clips, FrameSmoothing())
    wide = tabulate(clips, FrameSmoothing(3.0, 9.0))
    for frames in ("all", "covered", "one-person"):
        raw = plain.row(smoothed=False, frames=frames)
        assert wide.row(smoothed=False, frames=frames) == raw
        assert plain.row(smoothed=True, frames=frames).auroc == raw.auroc


def test_the_number_of_people_with_a_score_is_a_score_itself(clips: list[ScoredClip]) -> None:
    evaluation = table(clips)
    # crowd: 0 1 1 2 1 0, loner: 0 1 1; abnormal 1 2, 1 against normal 0 1 1 0, 0 1
    every = evaluation.row(method="persons", smoothed=False)
    assert every.auroc == pytest.approx((4.5 + 6 + 4.5) / 18)
    covered = evaluation.row(method="persons", smoothed=False, frames="covered")
    assert covered.auroc == pytest.approx((1.5 + 3 + 1.5) / 9)
    alone = evaluation.row(method="persons", smoothed=False, frames="one-person")
    assert alone.auroc == 0.5
    assert (alone.n_frames, alone.n_abnormal) == (4, 1)


def test_lack_of_confidence_is_a_score_itself() -> None:
    made = scores("unsure", 4, [(1, 0, 9.0), (1, 1, 0.0), (1, 2, 9.0), (1, 3, 9.0)])
    c = np.array([0.9, 0.1, 0.2, 0.8], dtype=np.float32)
    unsure = replace(made, windows=replace(made.windows, c=c))
    clip = ScoredClip(unsure, labels([0, 1, 1, 0]), np.ones(4, dtype=np.int64))
    row = table([clip]).row(method="confidence", smoothed=False, frames="covered")
    assert row.auroc == 1.0


def test_a_random_score_is_drawn_per_window_ten_times(clips: list[ScoredClip]) -> None:
    areas = []
    for draw in range(10):
        a, b, c, d, e, f, g = np.random.default_rng(draw).standard_normal(7, dtype=np.float32)
        every = np.array([a, b, max(c, d), e, f, g])
        areas.append(auroc(np.array([0, 1, 1, 0, 1, 0], dtype=np.bool_), every))
    row = table(clips).row(method="random", smoothed=False, frames="covered")
    assert row.auroc == pytest.approx(np.mean(areas))


@pytest.mark.parametrize("smoothed", [False, True])
def test_a_random_score_tells_nothing_of_a_single_person(smoothed: bool) -> None:
    rng = np.random.default_rng(0)
    alone = []
    for clip in range(40):
        first = int(rng.integers(50))  # frames before it have no score, and are normal
        rows = [(1, frame, 0.0) for frame in range(first, 200)]
        abnormal = np.zeros(200, dtype=np.bool_)
        abnormal[first : first + 80] = clip % 2 == 0
        ones = np.ones(200, dtype=np.int64)
        alone.append(ScoredClip(scores(str(clip), 200, rows), labels(abnormal), ones))
    evaluation = tabulate(alone, FrameSmoothing(0.0, 5.0, "scored"))
    row = evaluation.row(method="random", smoothed=smoothed, frames="one-person")
    assert row.auroc == pytest.approx(0.5, abs=0.03)


def test_the_table_has_every_combination_once(clips: list[ScoredClip]) -> None:
    rows = table(clips).rows
    keys = {(row.method, row.placement, row.smoothed, row.frames) for row in rows}
    assert len(rows) == len(keys) == 4 * 2 * 2 * 3


def test_the_evaluation_says_what_stands_behind_it(clips: list[ScoredClip]) -> None:
    empty = Scores("empty", 4, 2, WindowScores.join([], 1), Repairs(), 0)
    nobody = ScoredClip(empty, labels([0, 0, 1, 1]), np.zeros(4, dtype=np.int64))
    evaluation = table([*clips, nobody])
    assert (evaluation.n_clips, evaluation.empty_clips) == (3, 1)
    assert evaluation.n_frames == evaluation.n_counted == 13
    assert (evaluation.n_windows, evaluation.flat_windows) == (7, 2)
    assert evaluation.mended.poses == 10
    assert evaluation.row(frames="all").n_frames == 13
    assert evaluation.row(frames="covered").n_frames == 6


def test_without_any_clip_every_metric_is_undefined() -> None:
    evaluation = table([])
    assert all(math.isnan(row.auroc) and row.n_frames == 0 for row in evaluation.rows)


def test_a_row_that_was_not_made_is_an_error(clips: list[ScoredClip]) -> None:
    with pytest.raises(DataError, match="has the placements latest, backtrack"):
        table(clips).row(placement="center")


def test_scores_and_truth_must_have_the_same_frames(clips: list[ScoredClip]) -> None:
    with pytest.raises(DataError, match=r"clip loner: expected labels of shape \(3,\), got \(2,\)"):
        replace(clips[1], labels=labels([0, 1]))
    with pytest.raises(
        DataError, match=r"clip loner: expected persons of shape \(3,\), got \(2,\)"
    ):
        replace(clips[1], persons=np.ones(2, dtype=np.int64))


def test_another_aggregation_is_computed_from_the_energies() -> None:
    E = np.array([[1, 5, 2], [3, -1, 4]], dtype=np.float32)
    c = np.array([0.5, 1.0], dtype=np.float32)
    two = WindowScores(np.array([1, 1]), np.array([1, 2]), c, E, c * E.max(axis=1))
    clip = Scores("two", 3, 2, two, Repairs(), 0)
    np.testing.assert_allclose(reaggregate(clip, "sum").A, [4, 6])
    np.testing.assert_allclose(reaggregate(clip, "sum", confidence=False).A, [8, 6])
    np.testing.assert_allclose(reaggregate(clip, 1).A, [2.5, -1])
    np.testing.assert_allclose(clip.A, [2.5, 4])


def test_the_frames_behind_a_row_know_their_clip_and_class(clips: list[ScoredClip]) -> None:
    runs, falls = labels([0, 0, 1, 0, 0, 0]).abnormal, labels([0, 0, 0, 1, 0, 0]).abnormal
    named = replace(clips[0].labels, classes={"run": runs, "fall": falls})
    hit = replace(clips[1].labels, classes={"fall": clips[1].labels.abnormal})
    pair = [replace(clips[0], labels=named), replace(clips[1], labels=hit)]
    street = Dataset("street", list, list, {}, {}, FrameSmoothing())
    found = frame_scores(pair, street, FrameView(frames="covered"))
    assert found.clips == ("crowd", "loner")
    assert found.clip.tolist() == [0, 0, 0, 0, 1, 1]
    assert found.score.tolist() == [[1, 2, 4, 5, 3, 0]]
    assert found.classes["fall"].tolist() == [False, False, True, False, True, False]
    # normal 1 5, 0: the run's 2 beats two of three, the falls' 4 and 3 do as well
    assert found.by_class() == pytest.approx({"run": 2 / 3, "fall": 2 / 3})


@pytest.mark.parametrize("smoothing", get_args(scoring.Smoothing))
def test_smoothing_ends_at_the_borders_of_a_clip(smoothing: scoring.Smoothing) -> None:
    """Both clips have a score in every frame, high in one and low in the other."""
    loud, calm = ([(1, frame, A) for frame in range(8)] for A in (9.0, 1.0))
    pair = [
        ScoredClip(scores(name, 8, rows), labels([0, 1] * 4), np.ones(8, np.int64))
        for name, rows in (("loud", loud), ("calm", calm))
    ]
    street = Dataset("street", list, list, {}, {}, FrameSmoothing(0.0, 3.0, smoothing))
    found = frame_scores(pair, street, FrameView(smoothed=True))
    np.testing.assert_allclose(found.score, [[9.0] * 8 + [1.0] * 8], rtol=1e-6)


def test_a_person_is_smoothed_by_one_width_and_frames_by_the_other() -> None:
    spike = [(1, frame, 9.0 * (frame == 4)) for frame in range(9)]
    steady = [(2, frame, 1.0) for frame in range(9)]
    clip = ScoredClip(scores("pair", 9, spike + steady), labels([0] * 8 + [1]), np.full(9, 2))
    street = Dataset("street", list, list, {}, {}, FrameSmoothing(1.0, 2.0))
    smoothed = gaussian_filter1d(np.array([0, 0, 0, 0, 9, 0, 0, 0, 0], np.float32), 1.0)
    expected = gaussian_filter1d(np.maximum(smoothed, 1.0), 2.0)
    np.testing.assert_allclose(frame_scores([clip], street).score[0], expected, rtol=1e-5)


@dataclass(frozen=True)
class Flawed:
    """A method whose score of one window of a clip is no number."""

    value: float

    def score(self, clip: Clip) -> Scores:
        rows = [(4, frame, 1.0) for frame in range(1, clip.n_frames)]
        return scores(clip.name, clip.n_frames, [*rows[:5], (4, 6, self.value), *rows[6:]])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_refused_and_not_taken_for_no_score(value: float) -> None:
    people = make(seed=3, train_clips=1, test_clips=2, seconds=3.0)
    first = next(iter(people.test())).name
    words = f"clip {first}, track 4, frame 6: expected finite scores, got {value} and 1 such values"
    with pytest.raises(DataError, match=words) as error:
        score_clips(Flawed(value), people)
    assert error.value.hint
    assert len(score_clips(Flawed(2.0), people)) == 2


class AnkleSpeed:
    """A detector that needs no fit: how much the joints of a window move, at two scales."""

    def __init__(self, config: Config) -> None:
        self.config, self.view_settings = config, [ViewSettings(config)]

    def score(self, clip: Clip) -> Scores:
        index, counts = runs.cut(clip, self.view_settings, skeletons.STEP18)
        batch = index.windows(slice(None))
        motion = np.abs(np.diff(batch.x, axis=3)).mean(axis=(1, 2, 3))
        E = np.stack([motion, -motion], axis=1).astype(np.float32)
        scored = WindowScores(batch.track_id, batch.frame, batch.c, E, E[:, 0] * batch.c)
        return Scores(clip.name, clip.n_frames, self.config.T, scored, counts, 0)


@pytest.fixture(scope="module")
def street(walker_dataset: Path) -> Dataset:
    return open_dataset(walker_dataset)


def test_running_people_are_found_in_a_data_set(street: Dataset) -> None:
    evaluation = evaluate(AnkleSpeed(Config()), street)
    assert evaluation.n_clips == 5
    assert evaluation.n_frames == 5 * 200
    assert evaluation.row(frames="covered").auroc > 0.55
    flipped = evaluate(AnkleSpeed(Config()), street, aggregation=1)
    assert flipped.row(frames="covered").auroc < evaluation.row(frames="covered").auroc


def test_the_models_own_use_of_confidence_is_kept_by_another_aggregation(street: Dataset) -> None:
    with_confidence = evaluate(AnkleSpeed(Config()), street, aggregation=0)
    assert repr(with_confidence) == repr(evaluate(AnkleSpeed(Config()), street))
    without = evaluate(AnkleSpeed(Config(confidence=False)), street, aggregation=0)
    assert without.row() != with_confidence.row()


def test_options_of_an_evaluation_reach_the_table(street: Dataset) -> None:
    scorer = AnkleSpeed(Config())
    usual = evaluate(scorer, street)
    assert set(usual.n_covered) == {"latest", "backtrack"}
    center = evaluate(scorer, street, placements=["center"], floor="per_clip")
    assert set(center.n_covered) == {"center"}
    clips = [
        ScoredClip(scorer.score(clip), truth, clip.persons_per_frame())
        for clip, truth in street.test_clips()
    ]
    same = tabulate(
        with_motion(clips, street),
        FrameSmoothing(0.0, 13.0),
        placements=["center"],
        floor="per_clip",
    )
    assert repr(same) == repr(center)  # NaN equals itself in words


@pytest.mark.parametrize("method", ["detector", *TITLES])
@pytest.mark.parametrize("smoothed", [False, True])
@pytest.mark.parametrize("frames", ["all", "covered", "one-person"])
def test_the_frames_behind_a_row_give_its_figures(
    street: Dataset, method: ScorerName, smoothed: bool, frames: Selection
) -> None:
    clips = with_motion(score_clips(AnkleSpeed(Config()), street), street)
    table = tabulate(clips, street.smoothing, floor="per_clip")
    row = table.row(method=method, placement="backtrack", smoothed=smoothed, frames=frames)
    view = FrameView("backtrack", smoothed, frames, "per_clip")
    behind = frame_scores(clips, street, view, method=method)
    figures = [behind.measure(metric) for metric in ("auroc", "ap", "eer")]
    assert figures == [row.auroc, row.ap, row.eer]
    assert (len(behind.abnormal), behind.abnormal.sum()) == (row.n_frames, row.n_abnormal)
    assert len(behind.score) == (10 if method == "random" else 1)


def test_an_evaluation_reports_every_clip(street: Dataset) -> None:
    reports: list[Progress] = []
    evaluate(AnkleSpeed(Config()), street, report=reports.append)
    assert [(report.done, report.total) for report in reports] == [(n, 5) for n in range(1, 6)]
    assert reports[0].note == "01_0001"


@pytest.mark.data
def test_trivial_scores_reach_the_known_figures_on_poselift(data_dir: Path) -> None:
    dataset = open_dataset(data_dir / "PoseLift")
    evaluation = evaluate(AnkleSpeed(Config()), dataset, floor="per_clip")
    assert evaluation.n_covered == {"latest": 3135, "backtrack": 3707}
    usual = evaluate(AnkleSpeed(Config()), dataset)
    every = usual.row(method="persons", smoothed=False)
    covered = usual.row(method="persons", smoothed=False, frames="covered")
    assert every.auroc == pytest.approx(0.700, abs=0.002)
    assert covered.auroc == pytest.approx(0.639, abs=0.002)
    assert (every.n_frames, every.n_abnormal) == (4846, 1534)
    assert evaluation.row(method="random").auroc == pytest.approx(0.72, abs=0.01)
    assert evaluation.row(method="random", frames="covered").auroc == pytest.approx(0.64, abs=0.01)
    alone = evaluation.row(method="random", frames="one-person")
    assert alone.auroc == pytest.approx(0.5, abs=0.02)
