"""Compare methods on one data set: mean over seeds, interval over clips, paired lead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from stepvad import skeletons
from stepvad.config import Config, Reference, ViewKind
from stepvad.errors import ConfigError, Report, silent
from stepvad.evaluation import custom, protocol
from stepvad.evaluation.baselines import is_distance
from stepvad.evaluation.custom import CustomDataset, CustomMethod
from stepvad.evaluation.datasets import Dataset
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.metrics import FrameScores, Interval, Spread, over_seeds, resample
from stepvad.evaluation.protocol import FrameView, ScoredClip, ScorerName
from stepvad.evaluation.trivial import TITLES
from stepvad.model.scoring import WindowScores, score_clip
from stepvad.windows.views import ViewSettings, Windows

if TYPE_CHECKING:
    from stepvad.evaluation.runs import SweepPlace

UNWHITENED = Reference(whitening=0.0)
VARIANTS: Mapping[str, tuple[Experiment, str]] = {
    "step": (Experiment(), "STEP"),
    "step-unweighted": (
        Experiment(config=Config(confidence=False)),
        "STEP without confidence",
    ),
    "step-unwhitened": (Experiment(config=Config(reference=UNWHITENED)), "STEP without whitening"),
    "vanilla": (Experiment(method="vanilla"), "STEP with a plain MLP"),
    "raw-modulated": (Experiment(method="raw-modulated"), "STEP without PCA"),
    "raw-modulated-unweighted": (
        Experiment(method="raw-modulated", config=Config(confidence=False)),
        "STEP without PCA and confidence",
    ),
    "raw": (Experiment(method="raw"), "raw coordinates (MULDE) times confidence"),
    "raw-unweighted": (
        Experiment(method="raw", config=Config(confidence=False)),
        "raw coordinates (MULDE)",
    ),
    "knn": (Experiment(method="knn"), "PCA/kNN times confidence"),
    "knn-5": (Experiment(method="knn", k=5), "PCA/kNN times confidence, 5 neighbours"),
    "knn-unweighted": (Experiment(method="knn", config=Config(confidence=False)), "PCA/kNN"),
    "knn-unwhitened": (
        Experiment(method="knn", config=Config(reference=UNWHITENED)),
        "PCA/kNN times confidence, not whitened",
    ),
    "mahalanobis": (Experiment(method="mahalanobis"), "Mahalanobis times confidence"),
    "usual": (Experiment(method="usual"), "nearest usual motion"),
    "usual-place": (
        Experiment(method="usual", views=get_args(ViewKind)),
        "nearest usual motion, with the place",
    ),
}
"""All built-in methods, with the settings that distinguish them and their names in tables."""


@dataclass(frozen=True, slots=True)
class MethodResult:
    """One method on one selection of frames."""

    name: str
    auroc: Spread
    """Over seeds."""
    interval: Interval
    """Over clips, for the mean of the seeds."""
    lead: Interval | None
    """Lead of the first method over this one, paired over clips; None for the first itself."""
    ap: float
    eer: float
    by_class: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """The fits of each method: one for every seed."""

    seeds: Sequence[int] = (0,)
    jitter: float = 0.0
    """Noise on the coordinates of test windows."""
    fps: float | None = None
    """Rate of clips that do not state one, for `usual`, whose views are seconds long."""


def experiments(
    names: Sequence[str], config: Config, trials: Trials = Trials()
) -> dict[str, list[Experiment]]:
    """The experiments of each method, one per seed; distance methods need only one."""
    chosen = {}
    for name in names:
        if name not in VARIANTS:
            raise ConfigError(f"method: expected one of {', '.join(VARIANTS)}, got {name!r}")
        variant, _ = VARIANTS[name]
        settings = replace(
            config,
            confidence=variant.config.confidence,
            reference=replace(config.reference, whitening=variant.config.reference.whitening),
            fps=trials.fps if variant.method == "usual" else config.fps,
        )
        needed = trials.seeds[:1] if is_distance(variant.method) else trials.seeds
        chosen[name] = [
            replace(variant, config=replace(settings, seed=seed), jitter=trials.jitter)
            for seed in needed
        ]
    return chosen


def compare(
    methods: Sequence[str | CustomMethod[Any]],
    data: Dataset | CustomDataset | SweepPlace | Path | str,
    *,
    config: Config = Config(),
    trials: Trials = Trials(),
    view: FrameView = FrameView(smoothed=False),
    report: Report = silent,
) -> list[MethodResult]:
    """Fit methods on the training clips of a data set and measure them on its test clips.

    A method is one of `VARIANTS`, fitted with `config` and each of the seeds, or a `CustomMethod`
    or its name `package.module:name`, fitted once. `data` is a directory, a `CustomDataset` or its
    name, or a `Dataset`; everything then runs in this process and no results are stored. With a
    `SweepPlace`, built-in methods run as it says and stored results are reused.

    Returns one line per method, the trivial scores last; leads are those of the first method.
    """
    entries = [_entry(method) for method in methods]
    titles = [VARIANTS[one][1] if isinstance(one, str) else one.name for one in entries]
    _check_titles(titles)
    names = [one for one in entries if isinstance(one, str)]
    chosen = experiments(names, config, trials)
    score = partial(protocol.score_clips, report=report)
    if isinstance(data, Dataset | CustomDataset | Path | str):
        dataset = custom.opened(data)
        built_in = {
            name: [score(x.scorer(x.fit(dataset, report=report)), dataset) for x in several]
            for name, several in chosen.items()
        }
    else:
        from stepvad.evaluation.runs import sweep  # needs pyarrow

        dataset = data.open()
        every = [experiment for several in chosen.values() for experiment in several]
        runs = iter(sweep(every, data, report=report) if every else ())
        built_in = {name: [next(runs).clips for _ in several] for name, several in chosen.items()}
    # custom methods are fitted here, once
    scored = {
        title: built_in[one]
        if isinstance(one, str)
        else [score(one.fitted(dataset.train_clips()), dataset)]
        for title, one in zip(titles, entries, strict=True)
    }
    # the trivial scores are of the same windows, as some method has scored them
    whole = [name for name in names if VARIANTS[name][0].method != "usual"]  # windows of T frames
    trivial = built_in[whole[0]][0] if whole else unscored(dataset, config)
    trivial = protocol.with_motion(trivial, dataset)
    return table(scored, trivial, dataset, view)


def _entry(method: str | CustomMethod[Any]) -> str | CustomMethod[Any]:
    """The name of a built-in method, or the custom method itself."""
    if isinstance(method, CustomMethod) or method in VARIANTS:
        return method
    if custom.is_name(method):
        return custom.load(method, CustomMethod)
    raise ConfigError(
        f"method: expected one of {', '.join(VARIANTS)}, got {method!r}",
        hint="name your own method as package.module:name",
    )


def _check_titles(titles: Sequence[str]) -> None:
    """Reject an empty table, and methods with the same title."""
    taken = [*titles, *TITLES.values()]
    twice = [title for title in titles if taken.count(title) > 1]
    if twice or not titles:
        raise ConfigError(
            f"methods: expected different ones, got {twice[0] + ' twice' if twice else 'none'}",
            hint="name each method once, and give your own method an unused name",
        )


def unscored(dataset: Dataset, config: Config) -> list[ScoredClip]:
    """The windows of the test clips with all scores 0, the basis of the trivial scores."""

    def nothing(windows: Windows) -> WindowScores:
        zeros = np.zeros((len(windows), config.L), np.float32)
        return WindowScores(windows.track_id, windows.frame, windows.c, zeros, zeros[:, 0])

    found = []
    for clip, labels in dataset.test_clips():
        skeleton = skeletons.modelled(clip.skeleton)
        scores = score_clip(clip, [ViewSettings(config)], skeleton, nothing)
        found.append(ScoredClip(scores, labels, clip.persons_per_frame()))
    return found


def table(
    scored: Mapping[str, Sequence[Sequence[ScoredClip]]],
    trivial: Sequence[ScoredClip],
    dataset: Dataset,
    view: FrameView,
) -> list[MethodResult]:
    """One line per title, from the test clips as scored by each seed, then the trivial scores."""

    def chosen(clips: Sequence[ScoredClip], method: ScorerName = "detector") -> FrameScores:
        return protocol.frame_scores(clips, dataset, view, method=method)

    sets = {
        title: FrameScores.of_seeds([chosen(clips) for clips in several])
        for title, several in scored.items()
    }
    methods = protocol.scored_by(trivial)
    sets |= {title: chosen(trivial, name) for name, title in TITLES.items() if name in methods}
    # the same draws of clips for every method, so that leads are paired
    drawn = {title: resample(scores) for title, scores in sets.items()}
    first = next(iter(drawn.values()))
    return [
        MethodResult(
            name=title,
            auroc=over_seeds(scores.measure_each()),
            interval=drawn[title].interval(),
            lead=None if drawn[title] is first else first.minus(drawn[title]).interval(),
            ap=scores.measure("ap"),
            eer=scores.measure("eer"),
            by_class=scores.by_class(),
        )
        for title, scores in sets.items()
    ]
