"""The frame-level protocol (Sec. 4.1, Supp. C), for the detector and for trivial scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Literal, Protocol, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Aggregation
from stepvad.errors import ConfigError, DataError, Progress, Report, silent
from stepvad.evaluation import trivial
from stepvad.evaluation.datasets import Dataset, FrameSmoothing
from stepvad.evaluation.metrics import METRICS, FrameScores, Interval, resample
from stepvad.evaluation.trivial import Motion, Trivial
from stepvad.formats.labels import FrameLabels
from stepvad.model import scoring
from stepvad.model.scoring import Floor, Placement, Scores
from stepvad.poses import Clip
from stepvad.windows.body import Repairs
from stepvad.windows.views import Views

ScorerName = Literal["detector", Trivial]
Selection = Literal["all", "covered", "one-person"]
Scalar = TypeVar("Scalar", bound=np.generic)
PLACEMENTS: tuple[Placement, ...] = ("latest", "backtrack")
"""Online and Backtrack, the two protocols of the paper's tables."""


class Scorer(Protocol):
    """A fitted detector, or anything that scores clips like one."""

    def score(self, clip: Clip) -> Scores:
        """Score a clip; higher is more abnormal."""
        ...


def evaluate(
    scorer: Scorer,
    dataset: Dataset,
    *,
    placements: Sequence[Placement] = PLACEMENTS,
    floor: Floor = "global",
    aggregation: Aggregation | None = None,
    report: Report = silent,
) -> Evaluation:
    """Score the test clips of a data set one by one and compute the metrics, see `tabulate`."""
    clips = score_clips(scorer, dataset, aggregation=aggregation, report=report)
    clips = with_motion(clips, dataset, last=shortest_window(scorer))
    return tabulate(clips, dataset.smoothing, placements=placements, floor=floor)


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One row of the table: a method, the frames it is measured on, and its metrics.

    `frames` are all counted frames, those with a window score in this placement (`covered`), or
    the covered frames that show exactly one person. Method `persons` scores a frame by its number
    of scored people, `confidence` scores a window by minus its confidence, `random` by a random
    number, `speed` by the speed of the body, `place` by the distance to the nearest place of
    training footage. A metric is NaN if only one class is present.
    """

    method: ScorerName
    placement: Placement
    smoothed: bool
    frames: Selection
    auroc: float
    ap: float
    eer: float
    n_frames: int
    n_abnormal: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The table of one detector on one data set, and the counts behind it."""

    rows: tuple[ResultRow, ...]
    n_clips: int
    empty_clips: int
    """Clips without people; their frames still count."""
    n_frames: int
    """Frames of all test clips."""
    n_counted: int
    """Frames that count in this split."""
    n_covered: Mapping[Placement, int]
    """Counted frames with a score of their own."""
    n_windows: int
    flat_windows: int
    """Windows with too little spread to be standardised by it."""
    mended: Repairs
    """Repairs made to the test poses."""

    def row(
        self,
        *,
        method: ScorerName = "detector",
        placement: Placement = "latest",
        smoothed: bool = True,
        frames: Selection = "all",
    ) -> ResultRow:
        """The row with these choices."""
        wanted = (method, placement, smoothed, frames)
        for row in self.rows:
            if (row.method, row.placement, row.smoothed, row.frames) == wanted:
                return row
        raise DataError(
            f"expected a row of this table, got {wanted}",
            hint=f"it has the placements {', '.join(self.n_covered)}; place needs training "
            "clips, and speed windows of tracks",
        )


@dataclass(frozen=True, slots=True)
class ScoredClip:
    """Input of the protocol for one test clip: scores, labels and `persons (n_frames,)`.

    `motion` holds the trivial scores of the windows that need poses, see `with_motion`.
    """

    scores: Scores
    labels: FrameLabels
    persons: NDArray[np.int64]
    motion: Mapping[Motion, NDArray[np.float32]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that scores, labels and persons describe the same frames."""
        n_frames = self.scores.n_frames
        for what, values in (("labels", self.labels.abnormal), ("persons", self.persons)):
            if values.shape != (n_frames,):
                raise DataError(
                    f"clip {self.scores.clip}: expected {what} of shape ({n_frames},), "
                    f"got {values.shape}",
                    hint="give the clip the length of its labels before it is scored",
                )


def score_clips(
    scorer: Scorer,
    dataset: Dataset,
    *,
    aggregation: Aggregation | None = None,
    report: Report = silent,
) -> list[ScoredClip]:
    """Score every test clip; `aggregation` overrides the model's own. Scores must be finite."""
    clips = []
    for clip, labels in dataset.test_clips():
        scores = scorer.score(clip)
        if aggregation is not None:
            scores = reaggregate(scores, aggregation, confidence=weighs_confidence(scorer))
        _check_finite(scores)
        # energies take the most memory, and frame scores do not need them
        windows = replace(scores.windows, E=scores.windows.E[:, :0].copy())
        clips.append(ScoredClip(replace(scores, windows=windows), labels, clip.persons_per_frame()))
        report(Progress("evaluating", len(clips), len(dataset.labels), clip.name))
    return clips


def with_motion(
    clips: Sequence[ScoredClip], dataset: Dataset, *, last: int | None = None
) -> list[ScoredClip]:
    """Add the trivial scores `speed` and `place`; reads the clips of the data set again.

    They are of the `last` frames of a window; None takes all.
    """
    motions = trivial.motions([clip.scores for clip in clips], dataset, T=last)
    return [replace(clip, motion=motion) for clip, motion in zip(clips, motions, strict=True)]


def tabulate(
    clips: Sequence[ScoredClip],
    smoothing: FrameSmoothing,
    *,
    placements: Sequence[Placement] = PLACEMENTS,
    floor: Floor = "global",
) -> Evaluation:
    """AUROC, AP and EER over the frames of all clips together, without per-clip normalisation.

    Smoothing `scored` is a weighted mean of the scored frames around a frame, and the floor fills
    the other frames afterwards. Smoothing `filled` runs after the floor, which lowers the scores
    near frames without a score: even a random score is no longer at 50 on one-person frames. Both
    run over whole clips; frames that do not count are dropped afterwards.
    """
    rows: list[ResultRow] = []
    n_covered: dict[Placement, int] = {}
    for placement in placements:
        selections = _selections(clips, placement)
        n_covered[placement] = int(selections["covered"].sum())
        for smoothed, method in product((False, True), scored_by(clips)):
            view = FrameView(placement, smoothed, floor=floor)
            every = _all_frames(method, clips, view, smoothing)
            for frames, selected in selections.items():
                part = every.select(selected)
                auroc, ap, eer = (part.measure(name) for name in METRICS)
                n, n_abnormal = len(part.abnormal), int(part.abnormal.sum())
                choice = (method, placement, smoothed, frames)
                rows.append(ResultRow(*choice, auroc, ap, eer, n, n_abnormal))
    return Evaluation(
        rows=tuple(rows),
        n_clips=len(clips),
        empty_clips=sum(not clip.persons.any() for clip in clips),
        n_frames=sum(len(clip.labels) for clip in clips),
        n_counted=sum(int(clip.labels.counted.sum()) for clip in clips),
        n_covered=n_covered,
        n_windows=sum(len(clip.scores.windows) for clip in clips),
        flat_windows=sum(clip.scores.flat_windows for clip in clips),
        mended=sum((clip.scores.counts for clip in clips), Repairs()),
    )


@dataclass(frozen=True, slots=True)
class FrameView:
    """The way from window scores to frame scores, and the frames that are measured."""

    placement: Placement = "latest"
    smoothed: bool = True
    frames: Selection = "all"
    floor: Floor = "global"


def frame_scores(
    clips: Sequence[ScoredClip],
    dataset: Dataset,
    view: FrameView = FrameView(),
    *,
    method: ScorerName = "detector",
) -> FrameScores:
    """The frames behind one row of the table of a data set, with their scores.

    `metrics.resample` gives the confidence interval of the row, and of its lead over another
    method, `FrameScores.by_class` its metric by anomaly class, and `FrameScores.of_seeds` combines
    the same row of several fits.
    """
    if method not in scored_by(clips):
        raise DataError(
            f"method {method}: expected one of {', '.join(scored_by(clips))}, got no such scores",
            hint="speed and place need windows of tracks, see with_motion; place, training clips",
        )
    chosen = _selections(clips, view.placement)[view.frames]
    return _all_frames(method, clips, view, dataset.smoothing).select(chosen)


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """One row with its confidence interval, and its AUROC by anomaly class."""

    placement: Placement
    smoothed: bool
    frames: Selection
    auroc: Interval
    by_class: dict[str, float]


def interval_rows(
    clips: Sequence[ScoredClip],
    dataset: Dataset,
    placements: Sequence[Placement],
    method: ScorerName = "detector",
) -> list[IntervalRow]:
    """Rows with AUROC intervals over clips; the floor is that of the whole data set."""
    rows = []
    for placement, smoothed, frames in product(placements, (False, True), get_args(Selection)):
        view = FrameView(placement, smoothed, frames)
        scores = frame_scores(clips, dataset, view, method=method)
        sure = resample(scores).interval()
        rows.append(IntervalRow(placement, smoothed, frames, sure, scores.by_class()))
    return rows


def scored_by(clips: Sequence[ScoredClip]) -> list[ScorerName]:
    """The detector and the trivial scores that all clips have."""
    return ["detector", *trivial.known([clip.motion for clip in clips])]


def reaggregate(scores: Scores, aggregation: Aggregation, *, confidence: bool = True) -> Scores:
    """Recompute scores with another aggregation over the noise scales (Eq. 8, Supp. Table S6)."""
    c = scores.windows.c if confidence else 1.0
    values = scoring.anomaly_score(scores.windows.E, c, aggregation)
    return replace(scores, windows=replace(scores.windows, A=values))


def weighs_confidence(scorer: Scorer) -> bool:
    """True if its scores are weighted by confidence; raises if it has no noise scales."""
    views = _views_of(scorer)
    if len(views) != 1:
        raise ConfigError(
            "aggregation: expected a detector of one view, got a method without noise scales",
            hint="leave the aggregation out",
        )
    return views[0].config.confidence


def shortest_window(scorer: Scorer) -> int | None:
    """Frames that every window has, if they are fewer than T: those of the shortest view."""
    views = _views_of(scorer)
    return min(view.config.shortest for view in views) if len(views) > 1 else None


def _views_of(scorer: Scorer) -> Views:
    """The settings of a model's views; none of a scorer without."""
    return getattr(scorer, "view_settings", ())


def _check_finite(scores: Scores) -> None:
    """Reject scores that are no numbers: the frame protocol would take them for no score."""
    wrong = np.flatnonzero(~np.isfinite(scores.A))
    if len(wrong):
        windows, first = scores.windows, wrong[0]
        raise DataError(
            f"clip {scores.clip}, track {windows.track_id[first]}, frame {windows.frame[first]}: "
            f"expected finite scores, got {scores.A[first]} and {len(wrong)} such values in all",
            hint="check the poses of the clip and the jitter, or fit the model again",
        )


def _selections(
    clips: Sequence[ScoredClip], placement: Placement
) -> dict[Selection, NDArray[np.bool_]]:
    """Mask of each selection over the concatenated frames of all clips."""
    # frames of all clips in a row, (n,): people with a score, and people at all
    n_scored = _joined(
        [trivial.people_scored(clip.scores, placement) for clip in clips], np.float32
    )
    counted = _joined([clip.labels.counted for clip in clips], np.bool_)
    alone = _joined([clip.persons for clip in clips], np.int64) == 1
    covered = counted & ~np.isnan(n_scored)
    return {"all": counted, "covered": covered, "one-person": covered & alone}


def _all_frames(
    method: ScorerName, clips: Sequence[ScoredClip], view: FrameView, smoothing: FrameSmoothing
) -> FrameScores:
    """Every frame of every clip with its score."""
    if not view.smoothed:
        smoothing = replace(smoothing, person_sigma=0.0, frame_sigma=0.0)
    truths = [clip.labels for clip in clips]
    # a clip without a class shows it in none of its frames
    nowhere = [np.zeros(len(truth), dtype=np.bool_) for truth in truths]
    classes = {
        name: _joined(
            [t.classes.get(name, none) for t, none in zip(truths, nowhere, strict=True)], np.bool_
        )
        for name in dict.fromkeys(name for truth in truths for name in truth.classes)
    }
    # one series of frame scores, (n,), or one per random draw
    series = (
        _finish(clip_frames, view.floor, smoothing)
        for clip_frames in _series(method, clips, view, smoothing)
    )
    return FrameScores(
        clips=tuple(clip.scores.clip for clip in clips),
        clip=np.repeat(np.arange(len(clips)), [len(truth) for truth in truths]),
        abnormal=_joined([truth.abnormal for truth in truths], np.bool_),
        score=np.stack([*series]),
        classes=classes,
    )


def _series(
    method: ScorerName, clips: Sequence[ScoredClip], view: FrameView, smoothing: FrameSmoothing
) -> Iterator[list[NDArray[np.float32]]]:
    """Yield the frame scores of each clip, NaN where there is none; once per random draw."""
    series: Iterable[list[Scores]]
    match method:
        case "detector":
            series = [[clip.scores for clip in clips]]
        case "persons":
            yield [trivial.people_scored(clip.scores, view.placement) for clip in clips]
            return
        case "confidence":
            unsure = [trivial.with_scores(clip.scores, -clip.scores.windows.c) for clip in clips]
            series = [unsure]
        case "random":
            series = trivial.random_draws([clip.scores for clip in clips])
        case "speed" | "place":
            series = [[trivial.with_scores(clip.scores, clip.motion[method]) for clip in clips]]
    # the worst person of each frame, whose own scores are smoothed first
    place = partial(
        scoring.frame_scores, placement=view.placement, person_sigma=smoothing.person_sigma
    )
    for scores in series:
        yield [place(one.windows, one.n_frames, one.T) for one in scores]


def _finish(
    clips: Sequence[NDArray[np.float32]], floor: Floor, smoothing: FrameSmoothing
) -> NDArray[np.float32]:
    """Frame scores of all clips concatenated, smoothed and without NaN."""
    if smoothing.over == "scored":
        clips = [scoring.smooth_scored(frames, smoothing.frame_sigma) for frames in clips]
    filled = scoring.fill_uncovered(clips, floor)
    if smoothing.over == "filled":
        filled = [scoring.smooth(frames, smoothing.frame_sigma) for frames in filled]
    return _joined(filled, np.float32)


def _joined(parts: Sequence[NDArray[Scalar]], dtype: type[Scalar]) -> NDArray[Scalar]:
    """Concatenate the parts; an empty array if there are none."""
    return np.concatenate([np.empty(0, dtype=dtype), *parts])
