"""AUROC against cost: narrower networks, and fewer noise scales.

    OMP_NUM_THREADS=1 python -m studies sizes DATA MODELS -o sizes.csv --plot sizes.png

Fits STEP at several widths and scores the test clips with all noise scales and with some of them.
Models are kept in MODELS and not made again. Cost is counted in multiplications per window; the
study `profiles` times models. AUROC is over all
frames, online, not smoothed; the loss beside the widest network is paired over clips.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from stepvad import Config, Detector
from stepvad.evaluation import protocol
from stepvad.evaluation.datasets import Dataset, open_dataset
from stepvad.evaluation.metrics import FrameScores, Resampled, resample
from stepvad.evaluation.protocol import ScoredClip
from stepvad.model.engines import Folded
from stepvad.model.scoring import anomaly_score

WIDTHS = (1024, 512, 256, 128, 64)
SCALES = (5, 3, 2, 1)


@dataclass(frozen=True, slots=True)
class Point:
    """One place on the curve."""

    name: str
    kind: str
    work: int
    share: float
    """Of the work of the widest network with all scales."""
    auroc: float
    loss: float
    low: float
    high: float
    """The loss beside the widest network in points, and its interval over clips."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("models", type=Path)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, default=Path("sizes.csv"))
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args(arguments)
    given.models.mkdir(parents=True, exist_ok=True)
    dataset = open_dataset(given.data)
    config = replace(Config.short(), max_steps=given.steps, seed=given.seed)
    widths = {width: fitted(given.models, dataset, config, width) for width in WIDTHS}
    points = [*curve(widths, dataset)]
    with given.output.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(asdict(points[0])), lineterminator="\n")
        table.writeheader()
        table.writerows(asdict(point) for point in points)
    if given.plot is not None:
        draw(points, given.plot)


def fitted(models: Path, dataset: Dataset, config: Config, width: int) -> Detector:
    """STEP of this width, from its file if it is there."""
    path = models / f"step-{width}.safetensors"
    if not path.exists():
        print(f"fitting width {width}", flush=True)
        Detector.fit(dataset.train_clips(), replace(config, width=width)).save(path)
    return Detector.load(path)


def curve(widths: dict[int, Detector], dataset: Dataset) -> Iterator[Point]:
    """Every model, and the widest and the best narrow one with some of their scales."""
    named = {f"width {width}": model for width, model in widths.items()}
    widest = widths[WIDTHS[0]]
    whole = multiplications(widest.network.folded)
    reference: Resampled | None = None
    print(f"{'':28}{'work':>12}{'share':>9}{'AUROC':>8}{'loss':>8}{'interval':>18}")
    for name, model in named.items():
        for kept, frames in looks(model, dataset, SCALES):
            drawn = resample(frames)
            reference = reference or drawn
            lost = reference.minus(drawn).interval()
            folded = model.network.folded
            work = multiplications(
                replace(folded, b=folded.b[:, :kept], constant=folded.constant[:kept])
            )
            point = Point(
                name if kept == model.config.L else f"{name}, {kept} of {model.config.L} scales",
                "scales" if kept < model.config.L else "width",
                work,
                work / whole,
                100 * frames.measure("auroc"),
                100 * lost.value,
                100 * lost.low,
                100 * lost.high,
            )
            show(point)
            yield point


def multiplications(folded: Folded) -> int:
    """Multiplications per window: the entry once, then blocks and head at every scale."""
    entry = folded.W_1z.size + (0 if folded.W_z is None else folded.W_z.size)
    return entry + folded.L * (folded.W.size + folded.head.size)


def looks(
    model: Detector, dataset: Dataset, scales: Sequence[int]
) -> Iterator[tuple[int, FrameScores]]:
    """Frame scores with all scales and with some, evenly spread, from one pass over the clips."""
    last = model.config.L - 1
    every = {last + 1: np.arange(last + 1)}
    every |= {n: np.linspace(0, last, n + 2).round().astype(int)[1:-1] for n in scales}
    clips: dict[int, list[ScoredClip]] = {n: [] for n in every}
    for clip, labels in dataset.test_clips():
        scores = model.score(clip)
        for n, kept in every.items():
            w = scores.windows
            score = anomaly_score(w.E[:, kept], w.c, model.config.aggregation)
            less = replace(scores, windows=replace(w, E=w.E[:, :0], A=score))
            clips[n].append(ScoredClip(less, labels, clip.persons_per_frame()))
    for n, scored in clips.items():
        yield n, protocol.frame_scores(scored, dataset, protocol.FrameView(smoothed=False))


def draw(points: Sequence[Point], path: Path) -> None:
    """AUROC over the share of work, a colour for each kind."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = FigureCanvasAgg(figure).figure.subplots()
    for kind, marker, colour in (
        ("width", "o", "#0072B2"),
        ("scales", ".", "#56B4E9"),
    ):
        some = [point for point in points if point.kind == kind]
        axes.plot(
            [p.share for p in some], [p.auroc for p in some], marker, color=colour, label=kind
        )
    for point in points:
        if point.kind != "scales":
            axes.annotate(
                point.name,
                (point.share, point.auroc),
                textcoords="offset points",
                xytext=(4, -11),
                fontsize=8,
            )
    axes.set(xscale="log", xlabel="share of the paper's multiplications", ylabel="AUROC, %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def show(point: Point) -> None:
    """One line of the table."""
    between = f"{point.low:+.2f} to {point.high:+.2f}"
    print(
        f"{point.name:28}{point.work:12,}{point.share:9.4f}{point.auroc:8.2f}{point.loss:+8.2f}"
        f"{between:>18}",
        flush=True,
    )
