"""Custom methods and data sets: two functions each, measured like the built-in ones."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepvad.errors import ConfigError, DataError
from stepvad.evaluation.datasets import SMOOTHING, Dataset, Reader, Split, open_dataset
from stepvad.formats.labels import FrameLabels
from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip
from stepvad.windows.body import Repairs

State = TypeVar("State")
Entry = TypeVar("Entry", "CustomMethod[Any]", "CustomDataset")
CustomScores = Scores | ArrayLike | Mapping[int, ArrayLike]
"""Scores of a clip: one per frame `(n_frames,)`, or one per pose by track id, or a detector's."""
LabelledClips = Iterable[tuple[Clip, FrameLabels | ArrayLike]]
NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
"""Name of a custom method or data set: `package.module:name`."""


@dataclass(frozen=True, slots=True)
class CustomMethod(Generic[State]):
    """A custom method: `fit` learns from normal clips, `score` rates a clip.

    `score` takes the return value of `fit` and one clip, and returns one number per frame
    `(n_frames,)`, or for each track id one number per pose of the track, or `Scores`. Higher is
    more abnormal. A frame has the score of its most abnormal person.
    """

    name: str
    """Its name in a table."""
    fit: Callable[[Iterable[Clip]], State]
    score: Callable[[State, Clip], CustomScores]

    def __post_init__(self) -> None:
        """Reject arguments that are not callable."""
        _check_functions(self, "fit", "score")

    def fitted(self, clips: Iterable[Clip]) -> FittedMethod[State]:
        """Fit the method, for `evaluate`."""
        return FittedMethod(self, self.fit(clips))


@dataclass(frozen=True, slots=True)
class FittedMethod(Generic[State]):
    """A fitted custom method, which scores clips like a detector."""

    method: CustomMethod[State]
    state: State

    def score(self, clip: Clip) -> Scores:
        """The validated scores of a clip."""
        given = self.method.score(self.state, clip)
        where = f"method {self.method.name}, clip {clip.name}"
        if isinstance(given, Scores):
            _check_values(given.A, len(given.windows), where)
            return given
        if isinstance(given, Mapping):
            return _of_tracks(given, clip, where)
        # one score per frame, as if one person were present in every frame
        values, frames = _check_values(given, clip.n_frames, where), np.arange(clip.n_frames)
        sure = np.ones(clip.n_frames, np.float32)
        return _scores(clip, np.zeros_like(frames), frames, sure, values)


@dataclass(frozen=True, slots=True)
class CustomDataset:
    """A custom data set: `train` returns normal clips, `test` clips with their labels.

    Labels are `FrameLabels`, or one 0 or 1 per frame of the clip. Both functions are called more
    than once and must return the same clips every time; generators keep only one clip in memory.
    """

    name: str
    train: Reader
    test: Callable[[], LabelledClips]

    def __post_init__(self) -> None:
        """Reject arguments that are not callable."""
        _check_functions(self, "train", "test")

    def open(self) -> Dataset:
        """Open the data set with ShanghaiTech's smoothing; reads the labels of all test clips."""
        labels: dict[str, FrameLabels] = {}
        for clip, truth in self._pairs():
            if clip.name in labels:
                raise DataError(
                    f"{self.name}, clip {clip.name}: expected distinct names, got it twice",
                    hint="rename one of the two clips",
                )
            labels[clip.name] = truth
        if not labels:
            raise DataError(f"{self.name}: expected test clips, got none", hint="check `test`")
        return Dataset(
            name=self.name,
            train=partial(_clips, self.train, f"{self.name}, train"),
            test=lambda: (clip for clip, _ in self._pairs()),
            labels=labels,
            left_out={},
            smoothing=SMOOTHING["shanghaitech"],
        )

    def _pairs(self) -> Iterable[tuple[Clip, FrameLabels]]:
        """The test clips with their validated labels."""
        for pair in _each(self.test(), f"{self.name}, test"):
            if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Clip)):
                raise DataError(
                    f"{self.name}, test: expected pairs of a Clip and its labels, "
                    f"got {type(pair).__name__}",
                    hint="yield clip, labels",
                )
            clip, given = pair
            try:
                labels = FrameLabels.all_counted(given)
            except DataError as error:
                raise error.located(f"{self.name}, clip {clip.name}") from error
            if len(labels) != clip.n_frames:
                raise DataError(
                    f"{self.name}, clip {clip.name}: expected {clip.n_frames} labels, one per "
                    f"frame, got {len(labels)}",
                    hint="give the clip the length of its labels: clip.with_length(len(labels))",
                )
            yield clip, labels


def opened(data: Dataset | CustomDataset | Path | str, *, split: Split = "full") -> Dataset:
    """Open a data set in memory, under `package.module:name`, or in a directory."""
    if isinstance(data, Dataset):
        return data
    if not isinstance(data, CustomDataset):
        if Path(data).exists() or not is_name(str(data)):
            return open_dataset(data, split=split)
        data = load(str(data), CustomDataset)
    if split != "full":
        raise ConfigError(f"split: expected full for a custom data set, got {split!r}")
    return data.open()


def is_name(text: str) -> bool:
    """True if a text has the form `package.module:name`."""
    return NAME.fullmatch(text) is not None


def load(name: str, kind: type[Entry]) -> Entry:
    """Import the `CustomMethod` or `CustomDataset` named `package.module:name`."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # a dependency of their module is missing
        raise ConfigError(
            f"{name}: expected a module {module}, got none of that name",
            hint="start in the directory of its file, or install it",
        ) from error
    if not isinstance(found, kind):
        got = "none" if found is None else f"a {type(found).__name__}"
        raise ConfigError(
            f"{name}: expected a {kind.__name__} {attribute} in {module}, got {got}",
            hint=f"write {attribute} = {kind.__name__}(…) in {module}",
        )
    return found


def _check_functions(entry: CustomMethod[Any] | CustomDataset, *names: str) -> None:
    for name in names:
        function = getattr(entry, name)
        if not callable(function):
            raise ConfigError(
                f"{type(entry).__name__} {entry.name}: expected a function {name}, "
                f"got {function!r:.60}",
                hint="give the function itself, without calling it",
            )


def _clips(read: Reader, where: str) -> Iterable[Clip]:
    for clip in _each(read(), where):
        if not isinstance(clip, Clip):
            raise DataError(
                f"{where}: expected clips, got {type(clip).__name__}", hint="yield Clip objects"
            )
        yield clip


def _each(given: object, where: str) -> Iterable[Any]:
    if not isinstance(given, Iterable):
        raise DataError(
            f"{where}: expected an iterable of clips, got {type(given).__name__}",
            hint="return a list, or yield one clip at a time",
        )
    return given


def _of_tracks(given: Mapping[int, ArrayLike], clip: Clip, where: str) -> Scores:
    """One score per pose of each scored track."""
    tracks = {track.id: track for track in clip.tracks}
    unknown = [number for number in given if number not in tracks]
    if unknown:
        raise DataError(
            f"{where}: expected scores by track id, got track {unknown[0]!r}, which is not in it",
            hint="take the id of each track of clip.tracks",
        )
    # a score per pose, one track after another
    chosen = [tracks[number] for number in given]
    parts = [
        _check_values(given[track.id], len(track), f"{where}, track {track.id}") for track in chosen
    ]
    nothing, none = np.empty(0, np.int64), np.empty(0, np.float32)
    ids = [np.full(len(track), track.id) for track in chosen]
    sure = [np.nan_to_num(track.confidence).clip(0, 1).mean(axis=1) for track in chosen]
    return _scores(
        clip,
        np.concatenate([nothing, *ids]),
        np.concatenate([nothing, *(track.frames for track in chosen)]),
        np.concatenate([none, *sure]),
        np.concatenate([none, *parts]),
    )


def _scores(
    clip: Clip,
    track: NDArray[np.int64],
    frame: NDArray[np.int64],
    confidence: NDArray[np.float32],
    score: NDArray[np.float32],
) -> Scores:
    """Scores of single poses, as windows of one frame without noise scales."""
    energies = np.empty((len(score), 0), np.float32)
    windows = WindowScores(track, frame, confidence, energies, score)
    return Scores(clip.name, clip.n_frames, 1, windows, Repairs(poses=clip.n_poses), 0)


def _check_values(given: ArrayLike, n: int, where: str) -> NDArray[np.float32]:
    """Finite numbers `(n,)`; errors start with `where`."""
    try:
        with np.errstate(over="ignore"):  # infinity is rejected below
            values = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{where}: expected {n} numbers, got {type(given).__name__}",
            hint="give one score per frame, or by track id one per pose",
        ) from error
    if values.shape != (n,):
        raise DataError(
            f"{where}: expected scores of shape ({n},), got {values.shape}",
            hint="give one score per frame, or by track id one per pose",
        )
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise DataError(
            f"{where}: expected finite scores, got {values[wrong[0]]} at {wrong[0]} and "
            f"{len(wrong)} such values in all",
            hint="give the lowest score where there is nothing to score, or leave the track out",
        )
    return values
