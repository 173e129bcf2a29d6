"""The method as estimators of scikit-learn: windows of clips as rows, scores of rows (Sec. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepvad import skeletons
from stepvad.config import Config
from stepvad.errors import MissingExtraError, silent
from stepvad.model.engines import fold
from stepvad.model.modelfile import SMALLEST
from stepvad.model.pcspace import Moments, PCSpace
from stepvad.model.scoring import BATCH, anomaly_score, standardise_energies
from stepvad.poses import Clip
from stepvad.windows.runs import cut
from stepvad.windows.views import ViewSettings

try:
    from sklearn.base import BaseEstimator, OutlierMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as missing:
    raise MissingExtraError("stepvad.sklearn", "sklearn") from missing

__all__ = ["MotionWindows", "StepDetector"]


class MotionWindows(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    """Clips to rows: every window of T frames, standardised and flattened, `(n_windows, 2VT)`.

    The first step of a pipeline over clips. Windows are in the order of clips, people and frames;
    as many rows as there are windows come out, not as many as clips went in.
    """

    def __init__(self, T: int = 12) -> None:
        self.T = T

    def fit(self, X: Sequence[Clip], y: object = None) -> Self:
        """Remember the skeleton of the first clip with people."""
        kinds = (clip.skeleton for clip in X if clip.tracks)
        self.skeleton_ = skeletons.modelled(next(kinds, skeletons.COCO17))
        self.n_features_out_ = 2 * self.skeleton_.V * self.T
        return self

    def transform(self, X: Sequence[Clip]) -> NDArray[np.float32]:
        """The windows of all clips."""
        check_is_fitted(self)
        indices = (
            cut(clip, [ViewSettings(Config(T=self.T, fps=clip.fps))], self.skeleton_)[0]
            for clip in X
        )
        rows = [
            windows.x.reshape(len(windows), -1)
            for index in indices
            for windows in index.batches(BATCH)
        ]
        return np.concatenate([np.empty((0, self.n_features_out_), np.float32), *rows])


class StepDetector(OutlierMixin, BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    """STEP on rows of numbers: whitened PCA (Eq. 6), an energy model (Eq. 7), its score (Eq. 8).

    As everywhere in scikit-learn, lower scores are more abnormal and -1 is an outlier: the negative
    of what a `Detector` gives. Requires the train extra.

    Args:
        n_components: K, or the rank of the training rows if that is less.
        width: Width of the network.
        max_steps: Training steps.
        learning_rate: Peak learning rate.
        contamination: Share of the training rows that `predict` calls outliers.
        random_state: Seed of weights, batches and noise.
    """

    def __init__(
        self,
        n_components: int = 48,
        *,
        width: int = 256,
        max_steps: int = 2000,
        learning_rate: float = 5e-4,
        contamination: float = 0.1,
        random_state: Any = 0,
    ) -> None:
        self.n_components = n_components
        self.width = width
        self.max_steps = max_steps
        self.learning_rate = learning_rate
        self.contamination = contamination
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn from rows `(n, D)`, most of which are normal."""
        try:
            from stepvad.model import training
        except ImportError as error:
            raise MissingExtraError("fit", "train") from error
        rows = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        self.space_ = self._space(rows)
        config = Config(
            K=self.space_.W_K.shape[1],
            width=self.width,
            max_steps=self.max_steps,
            learning_rate=self.learning_rate,
            ema_warmup=True,
            confidence=False,
            seed=int(check_random_state(self.random_state).randint(2**31)),
        )
        self.config_ = replace(config, batch_size=min(config.batch_size, len(rows)))
        z, c = self.space_.project(rows), np.ones(len(rows), np.float32)
        data = training.TrainingSet(len(z), lambda some: (z[some], c[some]), "")
        weights, _ = training.train(data, self.config_, report=silent)
        self.network_ = fold(weights, self.config_)
        E = Moments.measure([self.network_.energies(z)], self.config_.L)
        self.E_mean_, self.E_var_ = E.mean, np.maximum(E.covariance.diagonal(), SMALLEST)
        self.offset_ = float(np.quantile(self.score_samples(rows), self.contamination))
        return self

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """-A(x) of rows, `(n,)`: the lower, the more abnormal (Eq. 8)."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        f = self.network_.energies(self.space_.project(rows))
        E = standardise_energies(f, self.E_mean_, self.E_var_)
        return -anomaly_score(E, 1.0, self.config_.aggregation).astype(np.float64)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """`score_samples` above the threshold; negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """-1 for outliers, 1 for the rest."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _space(self, rows: NDArray[Any]) -> PCSpace:
        """π with at most as many components as the rows have (Eq. 6)."""
        every = PCSpace.fit(Moments.measure([rows], rows.shape[1]), None)
        if not every.Lambda_K.size:
            raise ValueError(f"expected rows that differ, got n_samples = {len(rows)} alike")
        kept = min(self.n_components, every.Lambda_K.size)
        return PCSpace(every.mu, np.ascontiguousarray(every.W_K[:, :kept]), every.Lambda_K[:kept])
