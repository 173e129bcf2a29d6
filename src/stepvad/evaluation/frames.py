"""The frames that a metric is computed on: scores, labels and clips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.evaluation.metrics import MetricName, Ranking


@dataclass(frozen=True, slots=True, eq=False)
class FrameScores:
    """Frames of all `clips` concatenated; `clip (n,)` is the index of each frame's clip, from 0.

    `score (S, n)` are the scores of S seeds or draws, and a metric is the mean over them.
    `abnormal (n,)` are the labels; `classes` maps each anomaly class to a mask `(n,)` of the
    abnormal frames that show it.
    """

    clips: tuple[str, ...]
    clip: NDArray[np.int64]
    abnormal: NDArray[np.bool_]
    score: NDArray[np.float32]
    classes: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that all arrays describe the same frames and clips."""
        n = len(self.abnormal)
        shapes = [self.clip.shape, *(frames.shape for frames in self.classes.values())]
        if self.score.ndim != 2 or self.score.shape[1] != n or any(s != (n,) for s in shapes):
            raise DataError(
                f"expected scores of shape (S, {n}), clips and classes of ({n},), "
                f"got {self.score.shape} and {shapes}",
                hint="give one label, clip and score per frame, and a row of scores per seed",
            )
        if n and not 0 <= self.clip.min() <= self.clip.max() < len(self.clips):
            raise DataError(
                f"expected clips numbered from 0 to {len(self.clips) - 1}, "
                f"got {self.clip.min()} to {self.clip.max()}",
                hint="name every clip once",
            )

    @classmethod
    def of_seeds(cls, parts: Sequence[FrameScores]) -> FrameScores:
        """Combine the scores of one method with several seeds on the same frames."""
        first, *others = parts
        for other in others:
            if first.clips != other.clips or not np.array_equal(first.abnormal, other.abnormal):
                raise DataError(
                    f"expected the same frames from every seed, got {len(first.abnormal)} of "
                    f"{len(first.clips)} clips and {len(other.abnormal)} of {len(other.clips)}",
                    hint="score the same clips with every seed",
                )
        return replace(first, score=np.concatenate([part.score for part in parts]))

    def of_class(self, name: str) -> FrameScores:
        """The frames of one class of anomaly and all normal ones."""
        if name not in self.classes:
            raise DataError(
                f"class: expected one of {', '.join(self.classes) or 'none'}, got {name}",
                hint="only some data sets label the class of each anomaly",
            )
        return self.select(self.classes[name] | ~self.abnormal)

    def select(self, taken: NDArray[np.bool_]) -> FrameScores:
        """The selected frames, with the same clips."""
        return FrameScores(
            self.clips,
            self.clip[taken],
            self.abnormal[taken],
            self.score[:, taken],
            {name: frames[taken] for name, frames in self.classes.items()},
        )

    def rankings(self) -> list[Ranking]:
        """The frames ranked by each seed or draw."""
        return [Ranking.of(self.abnormal, score) for score in self.score]

    def measure_each(self, metric: MetricName = "auroc") -> list[float]:
        """The metric of each seed or draw."""
        return [ranking.count().measure(metric) for ranking in self.rankings()]

    def measure(self, metric: MetricName = "auroc") -> float:
        """Mean of the metric over seeds or draws; NaN if only one class is present."""
        return float(np.mean(self.measure_each(metric)))

    def by_class(self, metric: MetricName = "auroc") -> dict[str, float]:
        """The metric of each class of anomaly against all normal frames."""
        return {name: self.of_class(name).measure(metric) for name in self.classes}
