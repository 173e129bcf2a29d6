"""The paper's set-up on its three data sets, and its figures beside ours (Sec. 4.1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal, get_args

from stepvad.config import Compute, Config, Method
from stepvad.errors import ConfigError, DataError, Progress, Report, silent
from stepvad.evaluation import protocol
from stepvad.evaluation.datasets import UBNORMAL_VALIDATION, Dataset, Split, open_dataset, recognise
from stepvad.evaluation.experiment import RATED_EVERY, Experiment
from stepvad.evaluation.metrics import MetricName, Spread, over_seeds
from stepvad.evaluation.protocol import ScoredClip
from stepvad.evaluation.runs import ExperimentRun
from stepvad.formats.labels import find
from stepvad.model.scoring import Placement

PAPER_RUNS = 20
"""Number of trainings behind the paper's mean and deviation (Table 1)."""
ReproducedAggregation = Literal["max", "sum", "top2", "top3"]
"""Aggregations that do not depend on the test clips; they share a training."""
COMPARED_TABLES = (
    "tab:sota_comparison",
    "tab:aucap",
    "tab:aggregation_comprehensive",
    "tab:msad_hr",
)
"""Tables with figures of the paper's own set-up, to compare with ours."""
POSE_FILES = "*_alphapose_tracked_person.json"
HUMAN_RELATED = Path("hr_bool_masks") / "testing" / "test_frame_mask"

PaperDataset = Literal["ubnormal", "shanghaitech", "msad"]
"""Data sets of the paper."""
PaperAggregation = Literal["max", "sum", "top2", "top3", "best"]
"""Over the noise scales (Eq. 8); `best` is the single scale that is best on the test clips."""
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


def open_choices(
    name: PaperDataset, settings: Config, dataset: Dataset, compute: Compute
) -> list[str]:
    """Choices that the paper leaves open, as this run makes them; the paper map has them all."""
    from stepvad.model.training import training_precision

    precision, smoothing = training_precision(settings, compute), dataset.smoothing
    reference = settings.reference
    joints = "by the others" if settings.joints != "middle" else "in the middle of the others"
    found = [
        f"large products of the training in {precision}, all else in float32",
        f"gaps of up to {settings.T} frames filled linearly",
        "neck in the middle of the shoulders",
        f"joints that were not found placed {joints}",
        "confidences clipped to 0 to 1, nan as 0",
        "both axes divided by the deviation of y, at least "
        f"{reference.spread_floor:g} of that of x",
        "every window of a track kept" + (" but the last" if reference.drop_last_window else ""),
        f"block jitter {reference.block_jitter:g}",
        "frames without a score at the lowest of all minus 1",
        f"smoothed {'after' if smoothing.over == 'filled' else 'before'} that, with "
        f"σ = {smoothing.person_sigma:g} along a person and {smoothing.frame_sigma:g} over frames",
    ]
    if SETUPS[name].best_on_validation:
        found.append(
            f"all {settings.epochs} epochs trained and the best kept, rated by one validation "
            f"window in {RATED_EVERY}"
        )
    return [*found, "of methods beside STEP: kNN times confidence"]


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
            clips = [*_of_split(run.clips, splits[split])]
            view = protocol.FrameView(placement, smoothed)
            frames = protocol.frame_scores(clips, splits[split], view)
            measured.append([100 * frames.measure(cell.metric) for cell in cells])
        for cell, values in zip(cells, zip(*measured, strict=True), strict=True):
            # every printed figure of the cell in the tables compared, or None
            ours = over_seeds(values)
            printed = [one for one in FIGURES.get(cell, ()) if one.table in COMPARED_TABLES]
            found += [ReproducedFigure(cell, ours, figure) for figure in printed or (None,)]
        report(Progress("measuring", done + 1, len(choices)))
    return found


@dataclass(frozen=True, slots=True)
class Cell:
    """The subject of a figure; the defaults are the paper's own set-up (Sec. 4.1).

    Tables that do not name a protocol are online and smoothed, like Table 1. K does not apply to
    raw coordinates. `fit_on` names the data sets fitted on if they are not the one measured.
    """

    dataset: PaperDataset
    split: Split = "full"
    placement: Placement = "latest"
    smoothed: bool = True
    metric: MetricName = "auroc"
    method: Method = "step"
    T: int = 12
    K: int = 48
    confidence: bool = True
    whiten: bool = True
    sigma_low: float = 0.1
    sigma_high: float = 1.0
    aggregation: PaperAggregation = "max"
    drop_below: float = 0.0
    """Training poses with a lower confidence are dropped."""
    jitter: float = 0.0
    """Noise on the coordinates of test windows, σ_pixel."""
    fit_on: tuple[PaperDataset, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure in percent as printed, its table, and its standard deviation if given."""

    printed: str
    table: str
    """Label of the table in the paper's source."""
    deviation: float | None = None
    """Over 20 runs; None for one run, or if the table does not say."""

    @property
    def value(self) -> float:
        """The figure as a number."""
        return float(self.printed)

    @property
    def words(self) -> str:
        """The figure with its deviation, as text."""
        return self.printed if self.deviation is None else f"{self.printed} ± {self.deviation}"

    def difference(self, percent: float) -> float:
        """Another figure minus this one, in points; less than a millionth counts as 0."""
        return round(percent - self.value, 6)

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


def _of_split(clips: Sequence[ScoredClip], dataset: Dataset) -> Iterator[ScoredClip]:
    """Yield the clips of the full test set that a split includes, with its labels."""
    for clip in clips:
        labels = find(dataset.labels, clip.scores.clip)
        if labels is not None:
            yield replace(clip, labels=labels)


def _row(table: str, cells: Iterable[Cell], printed: str) -> Iterator[TableEntry]:
    """Yield the figures of a row or a part of it; `-` marks a missing one."""
    for cell, text in zip(cells, printed.split(), strict=True):
        if text != "-":
            yield cell, Figure(text, table)


def _table_1() -> Iterator[TableEntry]:
    """State of the art; the only table over 20 runs, and the supplement repeats it."""
    rows: dict[PaperDataset, tuple[str, str, float]] = {
        "shanghaitech": ("86.2", "87.7", 0.1),
        "ubnormal": ("90.1", "90.9", 0.4),
    }
    for table in ("tab:sota_comparison", "tab:sota_comparison_supp"):
        for dataset, (full, hr, deviation) in rows.items():
            yield Cell(dataset), Figure(full, table, deviation)
            yield Cell(dataset, "hr"), Figure(hr, table, deviation)
            raw = Cell(dataset, method="raw", T=1, confidence=False)
            yield raw, Figure("80.6" if dataset == "ubnormal" else "78.5", table)
    # the paper does not state T, K or whether scores are weighted by confidence
    yield from _row(table, [Cell(dataset, method="knn") for dataset in TABLE_DATASETS], "81.3 83.0")


def _dimensionality() -> Iterator[TableEntry]:
    """Window length, dimension and confidence on UBnormal, one run."""
    rows: dict[tuple[Method, int, bool], str] = {
        ("raw", 48, False): "80.6 80.7 78.7 75.7 72.2 72.6 72.6 70.6",
        ("raw-modulated", 48, True): "86.0 87.2 86.3 82.4 81.3 80.5 78.3 73.1",
        ("step", 48, False): "- 82.1 83.2 84.1 84.0 83.6 82.3 81.3",
        ("step", 16, True): "86.7 87.9 88.0 87.3 86.4 85.0 82.9 81.6",
        ("step", 32, True): "86.7 89.5 88.4 88.6 88.9 89.0 87.5 85.7",
        ("step", 48, True): "- 88.8 89.6 89.2 90.4 90.2 89.5 88.3",
        ("step", 64, True): "- 88.2 88.8 90.0 90.1 90.5 90.3 88.8",
        ("step", 128, True): "- - 87.5 87.9 88.8 89.2 89.2 88.4",
    }
    for (method, dimension, confidence), printed in rows.items():
        cell = Cell("ubnormal", method=method, K=dimension, confidence=confidence)
        cells = [replace(cell, T=length) for length in (1, 2, 4, 8, 12, 16, 24, 32)]
        yield from _row("tab:dimensionality_ablation", cells, printed)


def _components() -> Iterator[TableEntry]:
    """One part of the method changed at a time, one run."""
    for dataset in TABLE_DATASETS:
        cell = Cell(dataset)
        cells = [
            cell,
            replace(cell, method="vanilla"),
            replace(cell, whiten=False),
            *(replace(cell, drop_below=confidence) for confidence in (0.1, 0.2, 0.4)),
            *(replace(cell, sigma_low=sigma) for sigma in (1e-4, 0.5)),
            *(replace(cell, sigma_high=sigma) for sigma in (0.2, 0.5)),
        ]
        printed = {
            "shanghaitech": "86.3 85.6 85.5 86.4 86.0 84.3 86.1 82.7 86.4 86.4",
            "ubnormal": "90.4 89.3 88.2 90.5 89.6 85.9 89.6 86.9 89.9 90.6",
        }
        yield from _row("tab:unified_ablation", cells, printed[dataset])


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


def _over_dimensions(
    table: str, rows: Mapping[Cell, str], dimensions: tuple[int, ...]
) -> Iterator[TableEntry]:
    """Rows with UBnormal and then ShanghaiTech, each at several K."""
    for cell, printed in rows.items():
        cells = [
            replace(cell, dataset=dataset, K=dimension)
            for dataset in TABLE_DATASETS
            for dimension in dimensions
        ]
        yield from _row(table, cells, printed)


def _noise(
    length: int, *, sigma_low: float = 0.1, sigma_high: float = 1.0, drop_below: float = 0.0
) -> Cell:
    """A row of the supplement's sweeps over noise scales and dropped poses."""
    return Cell(
        "ubnormal",
        T=length,
        sigma_low=sigma_low,
        sigma_high=sigma_high,
        drop_below=drop_below,
    )


def _sigma_low() -> Iterator[TableEntry]:
    rows = {
        _noise(12, sigma_low=1e-4): "89.13 89.56 89.38 85.52 86.05 85.22",
        _noise(12, sigma_low=0.001): "89.33 89.24 89.48 85.43 85.97 85.42",
        _noise(12, sigma_low=0.01): "88.93 89.70 89.48 84.98 85.85 85.68",
        _noise(12, sigma_low=0.1): "88.91 90.37 90.54 85.64 86.28 85.45",
        _noise(12, sigma_low=0.5): "86.37 86.91 86.47 83.72 83.88 82.65",
        _noise(16, sigma_low=1e-4): "88.45 89.57 89.39 84.43 85.44 84.90",
        _noise(16, sigma_low=0.001): "88.60 89.19 88.98 84.46 85.31 85.25",
        _noise(16, sigma_low=0.01): "89.17 89.58 89.80 84.35 85.41 85.64",
        _noise(16, sigma_low=0.1): "88.95 89.67 90.60 84.93 85.59 85.37",
        _noise(16, sigma_low=0.5): "85.57 86.76 86.34 83.35 83.66 82.86",
        _noise(24, sigma_low=1e-4): "88.60 88.69 88.91 82.78 83.55 83.80",
        _noise(24, sigma_low=0.001): "88.63 89.05 88.72 83.26 83.98 84.11",
        _noise(24, sigma_low=0.01): "89.26 88.98 89.44 82.52 83.54 84.22",
        _noise(24, sigma_low=0.1): "87.52 89.51 90.33 83.48 83.84 84.42",
        _noise(24, sigma_low=0.5): "84.18 85.50 86.27 82.78 82.79 82.43",
    }
    return _over_dimensions("tab:sigma_low_sweep", rows, (32, 48, 64))


def _sigma_high() -> Iterator[TableEntry]:
    rows = {
        _noise(12, sigma_high=0.2): "89.49 89.87 90.14 86.03 86.38 85.77",
        _noise(12, sigma_high=0.5): "89.48 90.57 90.24 85.74 86.49 86.02",
        _noise(12, sigma_high=1): "88.91 90.37 90.54 85.64 86.28 85.54",
        _noise(12, sigma_high=2): "89.12 89.89 90.43 85.77 86.10 85.29",
        _noise(16, sigma_high=0.2): "88.50 89.00 89.71 85.08 86.05 85.96",
        _noise(16, sigma_high=0.5): "89.49 89.36 90.41 84.84 85.66 85.75",
        _noise(16, sigma_high=1): "88.95 89.67 90.60 84.93 85.59 85.37",
        _noise(16, sigma_high=2): "88.27 89.70 90.51 84.77 85.55 84.84",
        _noise(24, sigma_high=0.2): "87.42 89.20 88.17 83.83 84.57 84.76",
        _noise(24, sigma_high=0.5): "87.26 89.04 89.08 83.85 84.27 84.36",
        _noise(24, sigma_high=1): "86.96 89.51 90.33 83.48 83.84 84.42",
        _noise(24, sigma_high=2): "87.87 89.74 89.78 83.88 84.08 84.11",
    }
    return _over_dimensions("tab:sigma_high_sweep", rows, (32, 48, 64))


def _dropped_poses() -> Iterator[TableEntry]:
    rows = {
        _noise(8): "87.25 88.61 89.22 89.96 84.61 86.04 85.92 85.11",
        _noise(8, drop_below=0.1): "87.25 88.89 89.14 90.27 84.84 86.16 86.03 85.25",
        _noise(8, drop_below=0.2): "87.86 89.17 89.49 89.23 84.98 85.74 85.81 85.07",
        _noise(8, drop_below=0.4): "86.37 86.43 86.51 85.43 84.12 84.95 84.43 83.36",
        _noise(12): "86.43 88.91 90.37 90.54 84.67 85.64 86.28 85.45",
        _noise(12, drop_below=0.1): "86.28 89.03 90.49 90.45 84.80 85.71 86.35 85.42",
        _noise(12, drop_below=0.2): "86.72 89.78 89.60 90.03 84.62 85.87 86.00 85.41",
        _noise(12, drop_below=0.4): "85.13 85.92 85.95 86.10 84.04 85.03 84.30 83.59",
        _noise(16): "84.99 88.95 89.67 90.60 84.23 84.93 85.59 85.37",
        _noise(16, drop_below=0.1): "84.08 88.63 90.21 90.34 84.42 84.85 85.68 85.35",
        _noise(16, drop_below=0.2): "85.70 88.79 89.60 90.23 83.95 85.07 85.48 85.02",
        _noise(16, drop_below=0.4): "84.46 84.71 85.42 86.06 83.57 84.57 84.14 83.39",
        _noise(24): "82.93 87.52 89.51 90.33 83.14 83.48 83.84 84.42",
        _noise(24, drop_below=0.1): "82.91 87.30 89.24 90.26 83.42 83.55 84.17 84.10",
        _noise(24, drop_below=0.2): "85.24 87.68 90.09 90.17 82.95 84.19 84.29 84.02",
        _noise(24, drop_below=0.4): "84.30 84.06 85.55 85.52 82.72 83.14 83.15 82.63",
    }
    return _over_dimensions("tab:drop_pose_conf", rows, (16, 32, 48, 64))


def _aggregations() -> Iterator[TableEntry]:
    """The three aggregations on UBnormal at T = 12 and every K."""
    rows: dict[PaperAggregation, str] = {
        "sum": "79.7 83.3 87.2 87.2 87.1 84.8 81.5",
        "best": "81.9 86.9 89.6 90.3 90.1 89.2 85.3",
        "max": "82.3 86.4 88.9 90.4 90.1 88.8 85.7",
    }
    for aggregation, printed in rows.items():
        cell = Cell("ubnormal", aggregation=aggregation)
        cells = [replace(cell, K=dimension) for dimension in (8, 16, 32, 48, 64, 128, 256)]
        yield from _row("tab:agg_ablation", cells, printed)


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
        ("full", "best"): "87.84 91.37 90.85 92.21 85.10 89.84 90.44 91.81"
        " 84.05 82.03 85.51 83.82 83.61 81.91 86.29 84.62",
        ("hr", "max"): "88.99 91.71 91.81 92.53 86.20 90.17 91.34 92.10"
        " 85.64 82.02 87.27 84.24 85.12 82.31 87.97 85.45",
        ("hr", "sum"): "87.07 89.95 89.55 91.89 84.76 88.77 88.27 91.09"
        " 83.63 80.06 85.58 82.48 83.43 80.44 86.61 83.76",
        ("hr", "top2"): "88.94 91.67 91.72 92.47 86.16 90.14 91.28 92.06"
        " 85.48 81.89 87.13 84.12 84.98 82.17 87.85 85.32",
        ("hr", "top3"): "88.83 91.60 91.57 92.36 86.09 90.08 91.15 91.98"
        " 85.33 81.80 87.01 84.03 84.85 82.06 87.74 85.20",
        ("hr", "best"): "89.08 91.75 91.74 92.50 86.27 90.17 91.26 92.03"
        " 85.74 83.08 87.40 84.98 85.17 82.92 87.94 85.66",
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


def _across() -> Iterator[TableEntry]:
    """Fitted on one data set and measured on another, or fitted on both."""
    fits: tuple[tuple[PaperDataset, ...], ...] = (
        ("shanghaitech",),
        ("ubnormal",),
        ("shanghaitech", "ubnormal"),
    )
    rows: dict[PaperDataset, str] = {"shanghaitech": "86.3 77.2 86.0", "ubnormal": "82.4 90.6 88.9"}
    for dataset, printed in rows.items():
        cells = [Cell(dataset, fit_on=() if fit == (dataset,) else fit) for fit in fits]
        yield from _row("tab:cross_dataset", cells, printed)


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


def _jitter() -> Iterator[TableEntry]:
    """Noise on the test windows, one model."""
    rows: dict[tuple[PaperDataset, PaperAggregation], str] = {
        ("ubnormal", "max"): "90.62 90.63 90.44 89.12 82.46 74.80 68.95 64.24",
        ("ubnormal", "sum"): "87.57 87.58 87.70 87.67 86.41 82.14 72.21 62.89",
        ("ubnormal", "best"): "90.49 90.49 90.21 89.53 86.98 85.50 79.13 65.82",
        ("shanghaitech", "max"): "86.32 86.33 86.29 86.00 80.36 75.31 71.90 68.29",
        ("shanghaitech", "sum"): "84.88 84.88 84.95 85.15 84.21 80.19 73.47 66.55",
        ("shanghaitech", "best"): "86.29 86.29 86.20 85.87 84.90 83.79 80.04 69.35",
    }
    for (dataset, aggregation), printed in rows.items():
        cell = Cell(dataset, aggregation=aggregation)
        sizes = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
        yield from _row(
            "tab:jitter_robustness", [replace(cell, jitter=size) for size in sizes], printed
        )


def _collected(*tables: Iterable[TableEntry]) -> Mapping[Cell, tuple[Figure, ...]]:
    found: dict[Cell, tuple[Figure, ...]] = {}
    for table in tables:
        for cell, figure in table:
            found[cell] = (*found.get(cell, ()), figure)
    return found


FIGURES = _collected(
    _table_1(),
    _dimensionality(),
    _components(),
    _average_precision(),
    _sigma_low(),
    _sigma_high(),
    _dropped_poses(),
    _aggregations(),
    _protocols(),
    _across(),
    _msad(),
    _jitter(),
)
"""Every figure of STEP and of the methods it is compared with, by cell.

A cell printed in several tables lists all figures, Table 1 first: the tables disagree in places.
"""
