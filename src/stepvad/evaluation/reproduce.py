"""The paper's set-up on its three data sets, and its figures beside ours (Sec. 4.1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal, get_args

from stepvad.config import Config
from stepvad.errors import ConfigError, DataError, Progress, Report, silent
from stepvad.evaluation import protocol
from stepvad.evaluation.datasets import UBNORMAL_VALIDATION, Dataset, Split, open_dataset, recognise
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.metrics import MetricName, Spread, over_seeds
from stepvad.evaluation.runs import ExperimentRun
from stepvad.formats.labels import find
from stepvad.model.scoring import Placement

PAPER_RUNS = 20
"""Number of trainings behind the paper's mean and deviation (Table 1)."""
PaperAggregation = Literal["max", "sum", "top2", "top3"]
"""Over the noise scales (Eq. 8), those that do not depend on the test clips; a fit serves all."""
POSE_FILES = "*_alphapose_tracked_person.json"
HUMAN_RELATED = Path("hr_bool_masks") / "testing" / "test_frame_mask"

PaperDataset = Literal["ubnormal", "shanghaitech", "msad"]
"""Data sets of the paper."""
TOLERANCE = 0.5
"""Points within which a figure holds; the paper's own tables disagree by more in a few places."""
TABLE_DATASETS: tuple[PaperDataset, PaperDataset] = ("ubnormal", "shanghaitech")
"""In the order of the supplement's tables."""
PAPER_METRICS: tuple[MetricName, MetricName] = ("auroc", "ap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Settings of the paper that differ between data sets."""

    learning_rate: float
    best_on_validation: bool = False
    """Early stopping by validation AUROC; otherwise the last epoch is kept."""
    splits: tuple[Split, ...] = ("full", "hr")
    aggregations: tuple[PaperAggregation, ...] = get_args(PaperAggregation)
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


def paper_experiments(name: PaperDataset, settings: Config, runs: int) -> list[Experiment]:
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


def check_complete(name: PaperDataset, root: Path) -> None:
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


def open_splits(name: PaperDataset, root: Path) -> dict[Split, Dataset]:
    """Open every split of the data set; UBnormal has no human-related one without its masks."""
    splits = SETUPS[name].splits
    if name == "ubnormal" and not (root / HUMAN_RELATED).is_dir():
        splits = ("full",)
    return {split: open_dataset(root, split=split, layout=name) for split in splits}


def deviations(name: PaperDataset, settings: Config, runs: int, dataset: Dataset) -> list[str]:
    """Descriptions of the settings that differ from the paper."""
    own, ours = asdict(paper_config(name)), asdict(settings)
    found = [f"{key} {ours[key]} instead of {own[key]}" for key in own if ours[key] != own[key]]
    if runs != PAPER_RUNS:
        found.append(f"runs {runs} instead of {PAPER_RUNS}")
    if len(dataset.labels) != SETUPS[name].test_clips:
        found.append(f"test clips {len(dataset.labels)} instead of {SETUPS[name].test_clips}")
    return found


@dataclass(frozen=True, slots=True)
class ReproducedFigure:
    """Our figure, in percent and over runs, and the paper's figure, if it prints one."""

    cell: Cell
    ours: Spread
    figure: Figure | None

    @property
    def verdict(self) -> str:
        """`holds` or the difference between our figure and the paper's."""
        return "-" if self.figure is None else self.figure.verdict(self.ours.mean)


def reproduced_figures(
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
            for metric in PAPER_METRICS
        ]
        mine = runs[number :: len(aggregations)]
        # the metrics of each run on the clips of the split, in percent
        measured = []
        for run in mine:
            truths = [(one, find(splits[split].labels, one.scores.clip)) for one in run.clips]
            clips = [replace(one, labels=truth) for one, truth in truths if truth is not None]
            view = protocol.FrameView(placement, smoothed)
            frames = protocol.frame_scores(clips, splits[split], view)
            measured.append([100 * frames.measure(cell.metric) for cell in cells])
        for cell, values in zip(cells, zip(*measured, strict=True), strict=True):
            # every printed figure of the cell, or None
            ours = over_seeds(values)
            found += [ReproducedFigure(cell, ours, one) for one in FIGURES.get(cell, (None,))]
        report(Progress("measuring", done + 1, len(choices)))
    return found


@dataclass(frozen=True, slots=True)
class Cell:
    """The subject of a figure in the paper's own set-up (Sec. 4.1).

    Tables that do not name a protocol are online and smoothed, like Table 1.
    """

    dataset: PaperDataset
    split: Split = "full"
    placement: Placement = "latest"
    smoothed: bool = True
    metric: MetricName = "auroc"
    aggregation: PaperAggregation = "max"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure in percent as printed, its table, and its standard deviation if given."""

    printed: str
    table: str
    """Label of the table in the paper's source."""
    deviation: float | None = None
    """Over 20 runs; None for one run, or if the table does not say."""

    @property
    def words(self) -> str:
        """The figure with its deviation, as text."""
        return self.printed if self.deviation is None else f"{self.printed} ± {self.deviation}"

    def difference(self, percent: float) -> float:
        """Another figure minus this one, in points; less than a millionth counts as 0."""
        return round(percent - float(self.printed), 6)

    def holds(self, percent: float) -> bool:
        """True if another figure is within half a point, or within one deviation."""
        return abs(self.difference(percent)) <= max(TOLERANCE, self.deviation or 0.0)

    def verdict(self, percent: float) -> str:
        """`holds` or the difference; both if it holds within half a point but not one deviation."""
        difference = self.difference(percent)
        if math.isnan(difference):
            return "-"
        if not self.holds(percent):
            return f"{difference:+.2f}"
        if self.deviation is not None and abs(difference) > self.deviation:
            return f"holds, {difference:+.2f} is over one deviation"
        return "holds"


TableEntry = tuple[Cell, Figure]


def paper_config(name: PaperDataset) -> Config:
    """The paper's settings for a data set."""
    return Config(learning_rate=SETUPS[name].learning_rate)


def _needed(name: PaperDataset, root: Path) -> Iterator[tuple[bool, str]]:
    """Yield whether each required part is present, and its description."""
    poses = root / "pose"
    for part, what in (("train", "clips to fit on"), ("test", "test clips")):
        yield _holds(poses / part), f"pose/{part}/{POSE_FILES} ({what})"
    if name != "ubnormal":
        yield _holds(root / "gt" / "test_frame_mask"), "gt/test_frame_mask/<clip>.npy (labels)"
        return
    validation = any(_holds(poses / part) for part in UBNORMAL_VALIDATION)
    yield validation, f"pose/validation/{POSE_FILES} (clips that choose the best epoch)"
    yield any((root / "gt").glob("*_tracks.txt")), "gt/<clip>_tracks.txt (labels)"


def _holds(directory: Path) -> bool:
    """True if a directory exists and is not empty."""
    return directory.is_dir() and any(directory.iterdir())


def _row(table: str, cells: Iterable[Cell], printed: str) -> Iterator[TableEntry]:
    """Yield the figures of a row."""
    for cell, text in zip(cells, printed.split(), strict=True):
        yield cell, Figure(text, table)


def _table_1() -> Iterator[TableEntry]:
    """State of the art; the only table over 20 runs."""
    rows: dict[PaperDataset, tuple[str, str, float]] = {
        "shanghaitech": ("86.2", "87.7", 0.1),
        "ubnormal": ("90.1", "90.9", 0.4),
    }
    for dataset, (full, hr, deviation) in rows.items():
        yield Cell(dataset), Figure(full, "tab:sota_comparison", deviation)
        yield Cell(dataset, "hr"), Figure(hr, "tab:sota_comparison", deviation)


def _average_precision() -> Iterator[TableEntry]:
    """AUROC and AP on both splits; the number of runs is not stated."""
    rows: dict[PaperDataset, str] = {
        "ubnormal": "90.3 90.9 91.6 91.7",
        "shanghaitech": "86.2 87.7 84.3 85.2",
    }
    splits: tuple[Split, Split] = ("full", "hr")
    for dataset, printed in rows.items():
        cells = [
            Cell(dataset, split, metric=metric) for metric in PAPER_METRICS for split in splits
        ]
        yield from _row("tab:aucap", cells, printed)


def _protocols() -> Iterator[TableEntry]:
    """Aggregations, splits, placements, smoothing and both metrics; UBnormal first."""
    rows: dict[tuple[Split, PaperAggregation], str] = {
        ("full", "max"): "87.73 91.31 90.99 92.28 85.03 89.84 90.59 91.90"
        " 83.93 81.08 85.39 83.20 83.55 81.41 86.32 84.52",
        ("full", "sum"): "85.76 89.58 88.17 91.41 83.53 88.45 86.92 90.64"
        " 81.95 79.08 83.71 81.36 81.86 79.48 84.88 82.75",
        ("full", "top2"): "87.67 91.27 90.89 92.21 84.98 89.80 90.50 91.84"
        " 83.78 80.95 85.26 83.07 83.41 81.27 86.20 84.38",
        ("full", "top3"): "87.56 91.19 90.72 92.10 84.89 89.74 90.36 91.74"
        " 83.64 80.85 85.14 82.97 83.29 81.15 86.10 84.26",
        ("hr", "max"): "88.99 91.71 91.81 92.53 86.20 90.17 91.34 92.10"
        " 85.64 82.02 87.27 84.24 85.12 82.31 87.97 85.45",
        ("hr", "sum"): "87.07 89.95 89.55 91.89 84.76 88.77 88.27 91.09"
        " 83.63 80.06 85.58 82.48 83.43 80.44 86.61 83.76",
        ("hr", "top2"): "88.94 91.67 91.72 92.47 86.16 90.14 91.28 92.06"
        " 85.48 81.89 87.13 84.12 84.98 82.17 87.85 85.32",
        ("hr", "top3"): "88.83 91.60 91.57 92.36 86.09 90.08 91.15 91.98"
        " 85.33 81.80 87.01 84.03 84.85 82.06 87.74 85.20",
    }
    for (split, aggregation), printed in rows.items():
        cells = [
            replace(cell, split=split, aggregation=aggregation, metric=metric)
            for dataset in TABLE_DATASETS
            for cell in _placed(dataset)
            for metric in PAPER_METRICS
        ]
        yield from _row("tab:aggregation_comprehensive", cells, printed)


def _placed(dataset: PaperDataset) -> Iterator[Cell]:
    """BT Raw, BT Smooth, On Raw, On Smooth."""
    placements: tuple[Placement, Placement] = ("backtrack", "latest")
    for placement in placements:
        for smoothed in (False, True):
            yield Cell(dataset, placement=placement, smoothed=smoothed)


def _msad() -> Iterator[TableEntry]:
    """MSAD's protocol (i); `st` drops clips without people, `ub` labels their frames normal."""
    rows: dict[Split, str] = {
        "full": "57.6 59.9 56.4 59.6",
        "st": "71.7 72.8 69.9 71.6",
        "ub": "73.9 75.4 72.2 74.1",
    }
    for split, printed in rows.items():
        cells = [replace(cell, split=split) for cell in _placed("msad")]
        yield from _row("tab:msad_hr", cells, printed)


def _collected(*tables: Iterable[TableEntry]) -> Mapping[Cell, tuple[Figure, ...]]:
    found: dict[Cell, tuple[Figure, ...]] = {}
    for table in tables:
        for cell, figure in table:
            found[cell] = (*found.get(cell, ()), figure)
    return found


FIGURES = _collected(_table_1(), _average_precision(), _protocols(), _msad())
"""Every figure of STEP in the paper's own set-up, by cell.

A cell printed in several tables lists all figures, Table 1 first: the tables disagree in places.
"""
