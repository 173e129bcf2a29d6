"""Methods side by side on one data set: mean over seeds, interval over clips, paired lead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stepvad.baselines import is_distance
from stepvad.benchmark import intervals, protocol
from stepvad.benchmark.datasets import Dataset
from stepvad.benchmark.experiment import Experiment
from stepvad.benchmark.frames import FrameScores
from stepvad.benchmark.intervals import Interval, Resampled, Spread
from stepvad.benchmark.protocol import Method as Scored
from stepvad.benchmark.protocol import Selection
from stepvad.benchmark.runs import Run
from stepvad.config import Config
from stepvad.errors import ConfigError
from stepvad.model.scoring import Placement

VARIANTS: Mapping[str, tuple[Experiment, str]] = {
    "step": (Experiment(), "STEP"),
    "step-unweighted": (
        Experiment(config=Config(confidence=False)),
        "STEP without confidence",
    ),
    "step-unwhitened": (Experiment(config=Config(whiten=False)), "STEP without whitening"),
    "vanilla": (Experiment(method="vanilla"), "STEP with a plain MLP"),
    "raw": (Experiment(method="raw"), "raw coordinates (MULDE) times confidence"),
    "raw-unweighted": (
        Experiment(method="raw", config=Config(confidence=False)),
        "raw coordinates (MULDE)",
    ),
    "autoencoder": (Experiment(method="autoencoder"), "STEP on an autoencoder"),
    "autoencoder-anomalies": (
        Experiment(method="autoencoder", anomalies=True),
        "STEP on an autoencoder that saw anomalies",
    ),
    "vae": (Experiment(method="vae"), "STEP on a VAE"),
    "vae-anomalies": (
        Experiment(method="vae", anomalies=True),
        "STEP on a VAE that saw anomalies",
    ),
    "pca-anomalies": (Experiment(anomalies=True), "STEP on a PCA that saw anomalies"),
    "knn": (Experiment(method="knn"), "PCA/kNN times confidence"),
    "knn-5": (Experiment(method="knn", k=5), "PCA/kNN times confidence, 5 neighbours"),
    "knn-unweighted": (Experiment(method="knn", config=Config(confidence=False)), "PCA/kNN"),
    "knn-unwhitened": (
        Experiment(method="knn", config=Config(whiten=False)),
        "PCA/kNN times confidence, not whitened",
    ),
    "mahalanobis": (Experiment(method="mahalanobis"), "Mahalanobis times confidence"),
}
"""Every method to compare, with what sets it apart, and its name in a table."""
TRIVIAL: Mapping[Scored, str] = {
    "persons": "number of persons",
    "confidence": "minus confidence",
    "random": "random",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One method on one selection of frames."""

    name: str
    auroc: Spread
    """Over seeds."""
    interval: Interval
    """Over clips, for the mean of the seeds."""
    lead: Interval | None
    """Of the first method over this one, paired over clips; None for the first itself."""
    ap: float
    eer: float
    by_class: Mapping[str, float]


def experiments(
    names: Sequence[str], config: Config, seeds: Sequence[int], *, jitter: float = 0.0
) -> dict[str, list[Experiment]]:
    """The experiments of each name, one for each seed; distances need no more than one."""
    chosen = {}
    for name in names:
        if name not in VARIANTS:
            raise ConfigError(f"method: expected one of {', '.join(VARIANTS)}, got {name!r}")
        variant, _ = VARIANTS[name]
        settings = replace(
            config, confidence=variant.config.confidence, whiten=variant.config.whiten
        )
        needed = seeds[:1] if is_distance(variant.method) else seeds
        chosen[name] = [
            replace(variant, config=replace(settings, seed=seed), jitter=jitter) for seed in needed
        ]
    return chosen


def compare(
    runs: Mapping[str, Sequence[Run]],
    dataset: Dataset,
    *,
    placement: Placement = "latest",
    smoothed: bool = False,
    frames: Selection = "all",
) -> list[Line]:
    """A line for each method, the trivial ones last; leads are those of the first method."""

    def chosen(run: Run, scored: Scored = "detector") -> FrameScores:
        view = protocol.FrameView(placement, smoothed, frames)
        return protocol.frame_scores(run.clips, dataset, view, method=scored)

    sets = {
        VARIANTS[name][1]: FrameScores.of_seeds([chosen(run) for run in several])
        for name, several in runs.items()
    }
    some = next(iter(runs.values()))[0]
    sets |= {title: chosen(some, scored) for scored, title in TRIVIAL.items()}
    drawn = {title: intervals.resample(scores) for title, scores in sets.items()}
    first = next(iter(drawn.values()))
    return [_line(title, scores, drawn[title], first) for title, scores in sets.items()]


def _line(title: str, scores: FrameScores, drawn: Resampled, first: Resampled) -> Line:
    return Line(
        name=title,
        auroc=intervals.over_seeds(scores.measure_each()),
        interval=drawn.interval(),
        lead=None if drawn is first else first.minus(drawn).interval(),
        ap=scores.measure("ap"),
        eer=scores.measure("eer"),
        by_class=scores.by_class(),
    )
