"""Fits of the study of views, and their scores of test clips and normal footage, kept in files."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Compute, Config, View
from stepvad.detector import Detector
from stepvad.errors import DataError
from stepvad.evaluation import comparison, custom, provenance, runs
from stepvad.evaluation.baselines import Fitted, Method
from stepvad.evaluation.datasets import Dataset, Split
from stepvad.evaluation.densities import Density, with_density
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.protocol import ScoredClip
from stepvad.evaluation.sweep import changed, digest_of
from stepvad.evaluation.trivial import TITLES, BodyWindows, Places, Trivial
from stepvad.files.atomic import replacing
from stepvad.formats.labels import FrameLabels
from stepvad.model.footage import hold_out
from stepvad.model.scoring import Scores
from stepvad.poses import Clip

FEWEST_HOURS = 1 / 6
"""Held-out footage to count false alarms on; with less of it, the test clips are longer."""
NormalFootage = Literal["held-out", "test"]
Labelled = tuple[Clip, FrameLabels]


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """A data set with clips of known rate, and the normal footage to count false alarms on.

    `dataset` has the training clips that are fitted on. `held_out` are the others; if they are few,
    there are none of them and false alarms are counted in the normal frames of the test clips.
    """

    dataset: Dataset
    test: list[Labelled]
    held_out: list[Labelled]

    @classmethod
    def of(cls, dataset: Dataset, fps: float | None) -> Division:
        """Divide the training clips; `fps` is the rate of clips that do not state one."""

        def known(clip: Clip) -> Clip:
            clip = clip if clip.fps else clip.with_rate(fps)
            return clip.with_rate(clip.rate())

        train = [known(clip) for clip in dataset.train_clips()]
        test = [(known(clip), labels) for clip, labels in dataset.test_clips()]
        learned, others = hold_out(train)
        held = [(clip, _all_normal(clip)) for clip in others if clip.tracks]
        if _hours(held) < min(FEWEST_HOURS, _hours(test)):
            learned, held = train, []
        clips = [clip for clip, _ in test]
        own = replace(dataset, train=lambda: learned, test=lambda: clips)
        return cls(own, test, held)

    @property
    def source(self) -> NormalFootage:
        """Where false alarms are counted."""
        return "held-out" if self.held_out else "test"

    @property
    def hours(self) -> float:
        """Hours of normal frames that false alarms are counted in."""
        return _hours(self.held_out or self.test)

    @property
    def scored(self) -> list[Labelled]:
        """All clips to score: those of the test, then those held out, under other names."""
        held = [
            (replace(clip, name=f"held out: {clip.name}"), labels) for clip, labels in self.held_out
        ]
        return [*self.test, *held]


def _all_normal(clip: Clip) -> FrameLabels:
    """Labels of normal footage, which begins with its first pose."""
    frames = np.arange(clip.n_frames)
    return FrameLabels(np.zeros(clip.n_frames, np.bool_), frames >= clip.first_frame)


def _hours(clips: Sequence[Labelled]) -> float:
    seconds = [(labels.counted & ~labels.abnormal).sum() / clip.rate() for clip, labels in clips]
    return float(sum(seconds)) / 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPlace:
    """A data set that other processes can open, and the directory of its results."""

    data: Path | str
    results: Path
    split: Split = "full"
    fps: float | None = None
    compute: Compute = Compute()

    def divide(self) -> Division:
        """Open the data set and divide its training clips."""
        return Division.of(custom.opened(self.data, split=self.split), self.fps)

    def digest(self, division: Division) -> str:
        """A digest of all clips, their labels and rate, and of how they are divided."""
        every = digest_of(custom.opened(self.data, split=self.split))
        return f"{every} {self.fps} {division.source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFit:
    """One fit: the paper's detector, its kNN, the joined views, or nothing but trivial scores."""

    what: Literal["step", "knn", "views", "trivial"]
    config: Config
    """Settings of the paper's detector, with the seed."""
    views: tuple[View, ...] = field(default=())
    density: Density = "step"

    def file(self, place: ViewPlace, digest: str, suffix: str = ".parquet") -> Path:
        """Its result on data with this digest, by this code and its settings of views."""
        told = (self.what, self.config.facts(), self._views(), self.density)
        words = json.dumps(["views", *told, digest, provenance.code()], sort_keys=True)
        name = hashlib.sha256(words.encode()).hexdigest()[:20] + self._engine(place.compute)
        return place.results / f"{name}{suffix}"

    def _engine(self, compute: Compute) -> str:
        if self.what == "trivial":
            return ""
        method: Method = "knn" if self.what == "knn" else "step"
        return provenance.suffix(method, compute, self.config)

    def _views(self) -> list[dict[str, object]]:
        """Settings of the views at a slow and at a fast camera."""
        rates = (10.0, 50.0) if self.views else ()
        return [self.config.with_views(self.views, rate).facts() for rate in rates]


@dataclass(frozen=True, slots=True)
class ViewTask:
    """One fit on one data set."""

    fit: ViewFit
    place: ViewPlace
    digest: str


def run_view_fit(task: ViewTask) -> int:
    """Fit, score all clips, and write the scores; returns 1."""
    started, division = time.monotonic(), task.place.divide()
    score, columns = _scorer(task, division)
    clips = [
        _scored(score(clip), named.name, labels, keep=bool(columns))
        for clip, (named, labels) in zip(
            [clip for clip, _ in [*division.test, *division.held_out]],
            division.scored,
            strict=True,
        )
    ]
    facts = {
        "config": task.fit.config.facts(),
        "columns": columns,
        "data": task.digest,
        "seconds": time.monotonic() - started,
        "version": version("stepvad"),
        "code": provenance.code(),
    }
    if task.place.digest(task.place.divide()) != task.digest:
        raise changed(task.place.data)
    with replacing(task.fit.file(task.place, task.digest)) as temporary:
        runs.write(clips, facts, temporary)
    return 1


def _scored(scores: Scores, name: str, labels: FrameLabels, *, keep: bool) -> ScoredClip:
    """A scored clip under another name, with what stands behind its scores if it is kept."""
    windows = scores.windows
    windows = windows if keep else replace(windows, E=windows.E[:, :0])
    people = np.zeros(scores.n_frames, np.int64)
    return ScoredClip(replace(scores, clip=name, windows=windows), labels, people)


def _scorer(task: ViewTask, division: Division) -> tuple[Callable[[Clip], Scores], list[str]]:
    """What scores a clip, and the names of the columns behind its scores."""
    fit, dataset = task.fit, division.dataset
    if fit.what == "trivial":
        places = Places.of(dataset.train_clips(), fit.config.T)
        return partial(trivial_scores, config=fit.config, places=places), [*TITLES.values()]
    if fit.what != "views":
        experiment = Experiment(method=fit.what, config=fit.config)
        fitted: Fitted = experiment.fit(dataset, compute=task.place.compute)
        return fitted.score, []
    detector = _joined(task, dataset)
    columns = [part.config.view_name for part in detector.parts]
    clips = [*dataset.train_clips()]
    return with_density(detector, fit.density, clips, seed=fit.config.seed).score, columns


def _joined(task: ViewTask, dataset: Dataset) -> Detector:
    """The detector with views, fitted once for all densities."""
    fit = replace(task.fit, density="step")
    model = fit.file(task.place, task.digest, ".safetensors")
    if not model.exists():
        experiment = Experiment(config=fit.config, views=fit.views)
        fitted = experiment.fit(dataset, compute=task.place.compute)
        fitted.save(model)
    return Detector.load(model, runtime=task.place.compute.runtime)


def trivial_scores(clip: Clip, config: Config, places: Places | None) -> Scores:
    """The windows of a clip with a column for each of the trivial scores, none of them negative."""
    scores = comparison.without_scores(clip, config)
    windows = scores.windows
    body = BodyWindows.of(clip, scores.T).at(scores)
    if body is None or places is None:
        raise DataError(
            f"clip {clip.name}: expected windows of {config.T} frames of normal footage, got none",
            hint="check the training clips",
        )
    people = np.bincount(windows.frame, minlength=scores.n_frames)[windows.frame]
    drawn = np.random.default_rng([config.seed, crc32(clip.name.encode())]).random(len(windows))
    columns: dict[Trivial, NDArray[np.float64]] = {
        "persons": people.astype(np.float64),
        "confidence": 1 - windows.c.astype(np.float64),
        "random": drawn,
        "speed": body.speed.astype(np.float64),
        "place": places.distances(body.place).astype(np.float64),
    }
    values = np.column_stack([columns[name] for name in TITLES]).astype(np.float32)
    return replace(scores, windows=replace(windows, E=values))
