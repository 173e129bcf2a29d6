"""Subjects to time: the naive implementation, every engine, and the network's bare products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.evaluation.walkers import make_clips
from stepvad.model.runtime import Engine, available, precision_of, usable
from stepvad.model.scoring import anomaly_score, standardise_energies
from stepvad.windows import cut, standardise

SubjectKind = Literal["naive", "engine", "bare"]
ScoreArray = NDArray[np.float32]
Energies = Callable[[NDArray[np.float32]], NDArray[np.float32]]
CLIPS = 8
"""Number of walker clips, some of them abnormal, that provide the windows."""


@dataclass(frozen=True, slots=True)
class TimedSubject:
    """Something to time: an engine scoring, its bare products, or the training network."""

    kind: SubjectKind
    engine: Engine

    @property
    def name(self) -> str:
        """Its name in tables."""
        return self.engine if self.kind == "engine" else f"{self.kind} {self.engine}"

    @property
    def precision(self) -> str:
        """Precision of the large products."""
        return precision_of(self.engine)

    def prepare(
        self, detector: Detector, x: NDArray[np.float32]
    ) -> Callable[[], ScoreArray | None]:
        """A function that runs once: raw windows `(N, 2, V, T)` in pixels to A(x), or N products.

        The detector runs on the subject's engine.
        """
        match self.kind:
            case "engine":
                return _scoring(detector, x, detector.network.energies)
            case "naive":
                from stepvad.evaluation.speed.with_torch import naive_energies

                return _scoring(detector, x, naive_energies(detector.model))
            case "bare":
                return _products(detector, len(x))


def subjects(*, ranges: bool = True) -> Iterator[TimedSubject]:
    """Yield all subjects available on this machine, the naive one first; int8 needs `ranges`."""
    if usable("torch"):
        yield TimedSubject("naive", "torch")
    here = available(ranges=ranges)
    yield from (TimedSubject("engine", engine) for engine in here)
    yield from (TimedSubject("bare", engine) for engine in here)


def raw_windows(model: Path, N: int) -> NDArray[np.float32]:
    """N windows `(N, 2, V, T)` of walkers in pixels, repeated if there are fewer."""
    detector = Detector.load(model, runtime="numpy")
    parts = []
    for clip, _ in make_clips(CLIPS, seed=0, anomalies=True):
        index, _ = cut(clip, detector.config, detector.skeleton)
        poses = index.start[:, None] + np.arange(detector.config.T)
        parts.append(index.keypoints[poses].transpose(0, 3, 2, 1))
    found = np.concatenate(parts)
    chosen = np.linspace(0, len(found), N, endpoint=False).astype(np.int64)
    return np.ascontiguousarray(found[chosen])


def _scoring(
    detector: Detector, x: NDArray[np.float32], energies: Energies
) -> Callable[[], ScoreArray]:
    model = detector.model

    def run() -> ScoreArray:
        standardised, _ = standardise(x, model.config)
        E = energies(model.space.project(standardised))
        E = standardise_energies(E, model.E_mean, model.E_var)
        return anomaly_score(E, 1.0, model.config.aggregation)

    return run


def _products(detector: Detector, N: int) -> Callable[[], None]:
    """A function that computes only the large products of N windows."""
    folded, threads = detector.network.folded, detector.network.threads
    width = len(folded.head)
    rows = np.random.default_rng(0).standard_normal((N, folded.L, width), dtype=np.float32)
    match detector.network.engine:
        case "numpy":
            return lambda: _numpy_products(folded.W, rows.reshape(-1, width))
        case "onnxruntime" | "onnxruntime-int8" as engine:
            from stepvad.model.runtime.engines import onnxruntime_run
            from stepvad.model.runtime.graph import products_model

            int8 = engine == "onnxruntime-int8"
            run = onnxruntime_run(products_model(folded, int8=int8), threads)
        case "openvino" | "openvino-bfloat16" | "openvino-int8" as engine:
            from stepvad.model.runtime.engines import openvino_run
            from stepvad.model.runtime.graph import products_model

            model = products_model(folded, int8=engine == "openvino-int8")
            run = openvino_run(model, threads, bfloat16=engine == "openvino-bfloat16")
        case "torch" | "torch-bfloat16" as engine:
            from stepvad.evaluation.speed.with_torch import torch_products

            return torch_products(folded.W, rows, bfloat16=engine == "torch-bfloat16")
    return lambda: _discard(run([rows]))


def _numpy_products(W: NDArray[np.float32], rows: NDArray[np.float32]) -> None:
    for W_i in W:
        rows = rows @ W_i.T


def _discard(_: NDArray[np.float32]) -> None:
    """Discard a result."""
