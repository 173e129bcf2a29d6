"""The paper's set-up on its three data sets, and our figures compared with its own (Sec. 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal, get_args

from stepvad.config import Compute, Config
from stepvad.errors import ConfigError, DataError
from stepvad.evaluation import intervals, paper, protocol
from stepvad.evaluation.datasets import UBNORMAL_VALIDATION, Dataset, Split, open_dataset, recognise
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.intervals import Spread
from stepvad.evaluation.paper import FIGURES, Cell, Figure, PaperDataset
from stepvad.evaluation.protocol import ScoredClip
from stepvad.evaluation.runs import ExperimentRun
from stepvad.evaluation.validation import EVERY
from stepvad.formats.labels import find
from stepvad.progress import Progress, Report, silent

RUNS = 20
"""Number of trainings behind the paper's mean and deviation (Table 1)."""
ReproducedAggregation = Literal["max", "sum", "top2", "top3"]
"""Aggregations that do not depend on the test clips; they share a training."""
TABLES = ("tab:sota_comparison", "tab:aucap", "tab:aggregation_comprehensive", "tab:msad_hr")
"""Tables with figures of the paper's own set-up, to compare with ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Settings of the paper that differ between data sets."""

    learning_rate: float
    best_on_validation: bool = False
    """Early stopping by validation AUROC; otherwise the last epoch is kept."""
    splits: tuple[Split, ...] = ("full", "hr")
    aggregations: tuple[ReproducedAggregation, ...] = get_args(ReproducedAggregation)
    """Aggregations for which the paper has figures."""
    test_clips: int
    """Number of test clips according to the paper."""


SETUPS: Mapping[PaperDataset, Setup] = {
    "ubnormal": Setup(learning_rate=5e-4, best_on_validation=True, test_clips=211),
    "shanghaitech": Setup(learning_rate=2e-4, test_clips=107),
    "msad": Setup(
        learning_rate=2e-4, splits=("full", "st", "ub"), aggregations=("max",), test_clips=360
    ),
}
"""From Sec. 4.1; for MSAD from the supplement, protocol (i)."""
POSES = "*_alphapose_tracked_person.json"
HUMAN_RELATED = Path("hr_bool_masks") / "testing" / "test_frame_mask"


def config(name: PaperDataset) -> Config:
    """The paper's settings for a data set."""
    return Config(learning_rate=SETUPS[name].learning_rate)


def experiments(name: PaperDataset, settings: Config, runs: int) -> list[Experiment]:
    """One experiment per run and aggregation, grouped by run."""
    if runs < 1:
        raise ConfigError(f"runs: expected at least 1, got {runs}")
    setup = SETUPS[name]
    return [
        Experiment(
            config=replace(settings, seed=seed, aggregation=aggregation),
            best_on_validation=setup.best_on_validation,
        )
        for seed in range(runs)
        for aggregation in setup.aggregations
    ]


def deviations(name: PaperDataset, settings: Config, runs: int, dataset: Dataset) -> list[str]:
    """Descriptions of the settings that differ from the paper."""
    own, ours = config(name).facts(), settings.facts()
    found = [f"{key} {ours[key]} instead of {own[key]}" for key in own if ours[key] != own[key]]
    if runs != RUNS:
        found.append(f"runs {runs} instead of {RUNS}")
    if len(dataset.labels) != SETUPS[name].test_clips:
        found.append(f"test clips {len(dataset.labels)} instead of {SETUPS[name].test_clips}")
    return found


def open_choices(
    name: PaperDataset, settings: Config, dataset: Dataset, compute: Compute
) -> list[str]:
    """Choices that the paper leaves open, as this run makes them; the paper map has them all."""
    from stepvad.model.gradient import training_precision

    precision = training_precision(settings, compute)
    joints = "by the others" if settings.missing == "body" else "in the middle of the others"
    found = [
        f"large products of the training in {precision}, all else in float32",
        f"gaps of up to {settings.T} frames filled linearly",
        "neck in the middle of the shoulders",
        f"joints that were not found placed {joints}",
        "confidences clipped to 0 to 1, nan as 0",
        f"both axes divided by the deviation of y, at least {settings.spread_floor:g} of that of x",
        "every window of a track kept" + (" but the last" if settings.drop_last_window else ""),
        f"block jitter {settings.block_jitter:g}",
        "frames without a score at the lowest of all minus 1",
        f"smoothed {'after' if dataset.smoothing == 'filled' else 'before'} that, with "
        f"σ = {dataset.person_sigma:g} along a person and {dataset.frame_sigma:g} over frames",
    ]
    if SETUPS[name].best_on_validation:
        found.append(
            f"all {settings.epochs} epochs trained and the best kept, rated by one validation "
            f"window in {EVERY}"
        )
    return [*found, "of methods beside STEP: kNN times confidence"]


def check(name: PaperDataset, root: Path) -> None:
    """Reject a directory with missing parts of the data set, and name them."""
    missing = [words for present, words in _needed(name, root) if not present]
    if missing:
        raise DataError(
            f"{root}: expected {name} with poses and labels, got a directory without "
            + "; without ".join(missing),
            hint="the guide to reproducing the paper shows the tree and its sources; the "
            "poses are AlphaPose's, as released with STG-NF",
        )
    layout = recognise(root)
    if layout != name:
        raise DataError(
            f"{root}: expected a data set laid out as {name}, got one laid out as {layout}",
            hint=f"name it: stepvad reproduce {layout}" if layout in SETUPS else "",
        )
    abnormal = [*(root / "pose" / "train").glob("abnormal_*")] if name == "ubnormal" else []
    if abnormal:
        raise DataError(
            f"{root / 'pose' / 'train'}: expected normal clips alone to fit on, got "
            f"{len(abnormal)} named abnormal, such as {sorted(abnormal)[0].name}",
            hint="move them elsewhere: the paper fits on normal clips alone",
        )


def _needed(name: PaperDataset, root: Path) -> Iterator[tuple[bool, str]]:
    """Yield whether each required part is present, and its description."""
    poses = root / "pose"
    for part, what in (("train", "clips to fit on"), ("test", "test clips")):
        yield _holds(poses / part), f"pose/{part}/{POSES} ({what})"
    if name != "ubnormal":
        yield _holds(root / "gt" / "test_frame_mask"), "gt/test_frame_mask/<clip>.npy (labels)"
        return
    validation = any(_holds(poses / part) for part in UBNORMAL_VALIDATION)
    yield validation, f"pose/validation/{POSES} (clips that choose the best epoch)"
    yield any((root / "gt").glob("*_tracks.txt")), "gt/<clip>_tracks.txt (labels)"


def _holds(directory: Path) -> bool:
    """Whether a directory exists and is not empty."""
    return directory.is_dir() and any(directory.iterdir())


def open_splits(name: PaperDataset, root: Path) -> dict[Split, Dataset]:
    """Open every split of the data set; UBnormal has no human-related one without its masks."""
    splits = SETUPS[name].splits
    if name == "ubnormal" and not (root / HUMAN_RELATED).is_dir():
        splits = ("full",)
    return {split: open_dataset(root, split=split, layout=name) for split in splits}


@dataclass(frozen=True, slots=True)
class ReproducedFigure:
    """Our figure, in percent and over runs, and the paper's figure, if it prints one."""

    cell: Cell
    ours: Spread
    figure: Figure | None

    @property
    def verdict(self) -> str:
        """Whether the paper's figure holds, or by how much ours differs."""
        return "-" if self.figure is None else self.figure.verdict(self.ours.mean)


def lines(
    name: PaperDataset,
    runs: Sequence[ExperimentRun],
    splits: Mapping[Split, Dataset],
    report: Report = silent,
) -> list[ReproducedFigure]:
    """One line per figure, those of Agg-Max first; `runs` are in the order of `experiments`."""
    found: list[ReproducedFigure] = []
    aggregations = SETUPS[name].aggregations
    choices = [*product(range(len(aggregations)), splits, protocol.PLACEMENTS, (True, False))]
    for done, (number, split, placement, smoothed) in enumerate(choices):
        cells = [
            Cell(name, split, placement, smoothed, metric, aggregation=aggregations[number])
            for metric in paper.METRICS
        ]
        mine = runs[number :: len(aggregations)]
        measured = [_measure(run, cells, splits[split]) for run in mine]
        for cell, values in zip(cells, zip(*measured, strict=True), strict=True):
            ours = intervals.over_seeds(values)
            found += [ReproducedFigure(cell, ours, figure) for figure in _figures(cell)]
        report(Progress("measuring", done + 1, len(choices)))
    return found


def _figures(cell: Cell) -> Sequence[Figure | None]:
    """Every printed figure of a cell; a single None if there is none."""
    return [figure for figure in FIGURES.get(cell, ()) if figure.table in TABLES] or [None]


def _measure(run: ExperimentRun, cells: Sequence[Cell], dataset: Dataset) -> list[float]:
    """The metrics of one run, in percent."""
    view = protocol.FrameView(cells[0].placement, cells[0].smoothed)
    frames = protocol.frame_scores([*_of_split(run.clips, dataset)], dataset, view)
    return [100 * frames.measure(cell.metric) for cell in cells]


def _of_split(clips: Sequence[ScoredClip], dataset: Dataset) -> Iterator[ScoredClip]:
    """Yield the clips of the full test set that a split includes, with its labels."""
    for clip in clips:
        labels = find(dataset.labels, clip.scores.clip)
        if labels is not None:
            yield replace(clip, labels=labels)
