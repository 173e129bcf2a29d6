"""Methods and data sets of one's own, measured beside the built-in ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad import Clip, Config, Track
from stepvad.errors import ConfigError, DataError
from stepvad.evaluation import (
    CustomDataset,
    CustomMethod,
    Dataset,
    FrameLabels,
    auroc,
    compare,
    custom,
    evaluate,
    protocol,
)
from stepvad.evaluation.runs import SweepPlace
from stepvad.evaluation.trivial import TITLES
from stepvad.evaluation.walkers import make

TINY = Config(T=6, K=8)
COVERED = protocol.FrameView(smoothed=False, frames="covered")
TRIVIAL = [*TITLES.values()]


def speeds(track: Track) -> NDArray[np.float64]:
    """Pixels per frame that the middle of a body moves, per height of the body."""
    if len(track) < 2:
        return np.zeros(len(track))
    middle = track.keypoints.mean(axis=1)
    height = np.ptp(track.keypoints[..., 1], axis=1).mean()
    steps = np.linalg.norm(np.diff(middle, axis=0), axis=1) / np.diff(track.frames) / height
    return np.concatenate([steps[:1], steps])


def fit(clips: Iterable[Clip]) -> float:
    every = [speeds(track) for clip in clips for track in clip.tracks]
    return float(np.quantile(np.concatenate(every), 0.99))


def score(fastest: float, clip: Clip) -> dict[int, NDArray[np.float64]]:
    return {track.id: speeds(track) / fastest for track in clip.tracks}


SPEED = CustomMethod("speed of the body", fit, score)


@pytest.fixture(scope="module")
def people() -> Dataset:
    return make(seed=3, train_clips=3, test_clips=5, seconds=8.0)


@pytest.fixture(scope="module")
def own(people: Dataset) -> CustomDataset:
    """The same people as a data set of one's own, with labels of 0 and 1."""

    def test() -> Iterator[tuple[Clip, list[int]]]:
        for clip, labels in people.test_clips():
            yield clip, labels.abnormal.astype(int).tolist()

    return CustomDataset("walkers", people.train_clips, test)


def test_a_method_of_ones_own_stands_beside_the_built_in_ones(
    people: Dataset, own: CustomDataset
) -> None:
    lines = compare(["mahalanobis", SPEED], own, config=TINY)
    titles = ["Mahalanobis times confidence", "speed of the body", *TRIVIAL]
    assert [line.name for line in lines] == titles
    _, speed, *_ = lines
    worst = []
    fastest = fit(people.train_clips())
    for clip, _ in people.test_clips():
        frames = np.full(clip.n_frames, -np.inf)
        for track in clip.tracks:
            np.maximum.at(frames, track.frames, speeds(track) / fastest)
        worst.append(frames)
    truth = np.concatenate([labels.abnormal for _, labels in people.test_clips()])
    assert speed.auroc.mean == pytest.approx(auroc(truth, np.concatenate(worst)), abs=1e-6)
    assert speed.auroc.mean > 0.6  # some of them run
    assert speed.lead is not None
    assert speed.lead.value == pytest.approx(lines[0].auroc.mean - speed.auroc.mean)


def test_data_of_ones_own_give_the_figures_of_the_same_data_set(
    people: Dataset, own: CustomDataset
) -> None:
    ours, theirs = (compare(["mahalanobis"], data, config=TINY) for data in (own, people))
    for a, b in zip(ours, theirs, strict=True):
        assert (a.name, a.auroc.mean, a.interval, a.lead) == (
            b.name,
            b.auroc.mean,
            b.interval,
            b.lead,
        )


def test_scores_of_frames_are_scores_too(people: Dataset, own: CustomDataset) -> None:
    truth = {clip.name: labels.abnormal for clip, labels in people.test_clips()}
    oracle = CustomMethod("oracle", len_of, lambda _, clip: truth[clip.name].astype(float))
    first, *_ = compare([oracle], own, config=TINY)
    assert first.auroc.mean == first.ap == 1.0
    evaluation = evaluate(oracle.fitted(people.train_clips()), people)
    for placement in protocol.PLACEMENTS:
        assert evaluation.row(placement=placement, smoothed=False).auroc == 1.0
    assert oracle.fitted(people.train_clips()).state == 3
    with pytest.raises(ConfigError, match="aggregation: expected a detector"):
        evaluate(oracle.fitted([]), people, aggregation="sum")


def len_of(clips: Iterable[Clip]) -> int:
    return len([*clips])


def test_the_scores_of_a_detector_pass_as_they_are(people: Dataset) -> None:
    from stepvad.evaluation import baselines

    def fit_knn(clips: Iterable[Clip]) -> baselines.Fitted:
        return baselines.fit("mahalanobis", clips, TINY)

    wrapped = CustomMethod("wrapped", fit_knn, lambda fitted, clip: fitted.score(clip))
    ours, theirs, *_ = compare([wrapped, "mahalanobis"], people, config=TINY, view=COVERED)
    assert ours.auroc.mean == theirs.auroc.mean


STILL = np.ones((3, 17, 2), np.float32)
A_CLIP = Clip("a", 25.0, 4, (Track(7, np.arange(3), STILL, STILL[..., 0]),))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.zeros(3), r"method bad, clip a: expected scores of shape \(4,\), got \(3,\)"),
        (np.zeros((4, 1)), r"expected scores of shape \(4,\), got \(4, 1\)"),
        (None, "method bad, clip a: expected"),
        ("high", "method bad, clip a: expected 4 numbers, got str"),
        ([0, 1, np.nan, np.nan], "expected finite scores, got nan at 2 and 2 such values"),
        ([0, 1, np.inf, 0], "expected finite scores, got inf at 2 and 1 such values"),
        ([0, 1, 1e300, 0], "expected finite scores, got inf at 2"),
        ({8: np.zeros(3)}, "expected scores by track id, got track 8, which is not in it"),
        ({7: np.zeros(4)}, r"clip a, track 7: expected scores of shape \(3,\), got \(4,\)"),
        ({7: [0, np.nan, 0]}, "clip a, track 7: expected finite scores, got nan at 1"),
    ],
)
def test_scores_that_cannot_be_used_are_refused(given: Any, said: str) -> None:
    bad = CustomMethod("bad", len_of, lambda _, clip: given)
    with pytest.raises(DataError, match=said):
        bad.fitted([]).score(A_CLIP)


def test_a_clip_without_anybody_has_no_scores_of_tracks(people: Dataset) -> None:
    nobody = Clip("nobody", 25.0, 9, ())
    scores = SPEED.fitted(people.train_clips()).score(nobody)
    assert len(scores.windows) == 0
    assert np.isnan(scores.frames).all()


@pytest.mark.parametrize("name", ["fit", "score"])
def test_a_method_without_functions_is_refused(name: str) -> None:
    functions: dict[str, Any] = {"fit": fit, "score": score} | {name: 3.5}
    with pytest.raises(ConfigError, match=f"CustomMethod m: expected a function {name}, got 3.5"):
        CustomMethod("m", **functions)


@pytest.mark.parametrize("name", ["train", "test"])
def test_a_data_set_without_functions_is_refused(name: str) -> None:
    functions: dict[str, Any] = {"train": list, "test": list} | {name: [A_CLIP]}
    with pytest.raises(ConfigError, match=f"CustomDataset d: expected a function {name}"):
        CustomDataset("d", **functions)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "d: expected test clips, got none"),
        (None, "d, test: expected an iterable of clips, got NoneType"),
        ([A_CLIP], "d, test: expected pairs of a Clip and its labels, got Clip"),
        ([(A_CLIP, [0, 1])], "d, clip a: expected 4 labels, one per frame, got 2"),
        ([(A_CLIP, [0, 1, 2, 0])], "d, clip a: abnormal, frame 2: expected 0 or 1, got 2"),
        ([(A_CLIP, [0, 1, 1, 0])] * 2, "d, clip a: expected distinct names, got it twice"),
    ],
)
def test_test_clips_that_cannot_be_used_are_refused(given: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        CustomDataset("d", list, lambda: given).open()


def test_training_clips_that_are_none_are_refused() -> None:
    labels = FrameLabels.all_counted([0, 0, 1, 1])
    data = CustomDataset("d", lambda: ["a.json"], lambda: [(A_CLIP, labels)])  # type: ignore[list-item]  # that is the point
    with pytest.raises(DataError, match="d, train: expected clips, got str"):
        [*data.open().train_clips()]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "nowhere_at_all:speed",
            "nowhere_at_all:speed: expected a module nowhere_at_all, got none",
        ),
        ("stepvad.nowhere:speed", "expected a module stepvad.nowhere, got none of that name"),
        ("stepvad.poses:speed", "expected a CustomMethod speed in stepvad.poses, got none"),
        ("stepvad.poses:Clip", "expected a CustomMethod Clip in stepvad.poses, got a type"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        custom.load(name, CustomMethod)
    with pytest.raises(ConfigError, match=said):
        compare([name], "no data are read before that")


def test_a_module_that_lacks_another_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lacking.py").write_text("import not_installed_here\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        custom.load("lacking:speed", CustomMethod)


def test_methods_that_share_a_line_are_refused(own: CustomDataset) -> None:
    with pytest.raises(ConfigError, match="expected different ones, got STEP twice"):
        compare(["step", "step"], own)
    with pytest.raises(ConfigError, match="got random twice"):
        compare([CustomMethod("random", fit, score)], own)
    with pytest.raises(ConfigError, match="expected different ones, got none"):
        compare([], own)
    words = r"expected one of step, .* own method as package\.module:name"
    with pytest.raises(ConfigError, match=words):
        compare(["stepp"], own)


def test_data_of_ones_own_have_one_split(own: CustomDataset) -> None:
    with pytest.raises(ConfigError, match="split: expected full"):
        custom.opened(own, split="hr")


MODULE = """
from stepvad.evaluation import CustomDataset
from stepvad.evaluation.walkers import make

people = make(seed=3, train_clips=3, test_clips=5, seconds=8.0)
street = CustomDataset("street", people.train_clips, people.test_clips)
"""


def test_other_processes_find_data_of_ones_own_by_their_name(
    own: CustomDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "street_of_walkers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    place = SweepPlace(data="street_of_walkers:street", results=tmp_path / "results")
    lines = compare(["mahalanobis", SPEED], place, config=TINY)
    here = compare(["mahalanobis", SPEED], own, config=TINY)
    assert [(line.name, line.auroc.mean, line.lead) for line in lines] == [
        (line.name, line.auroc.mean, line.lead) for line in here
    ]
    (kept,) = (tmp_path / "results").iterdir()
    before = kept.stat().st_mtime_ns
    compare(["mahalanobis"], place, config=TINY)
    assert kept.stat().st_mtime_ns == before
