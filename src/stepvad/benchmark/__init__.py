"""Labelled data sets, and the frame-level protocol that measures a detector on them (Sec. 4.1)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepvad.benchmark.comparison import MethodResult, compare
    from stepvad.benchmark.custom import CustomDataset, CustomMethod
    from stepvad.benchmark.datasets import Dataset, open_dataset
    from stepvad.benchmark.intervals import Interval, Spread
    from stepvad.benchmark.metrics import auroc, average_precision, equal_error_rate
    from stepvad.benchmark.protocol import Evaluation, ResultRow, evaluate
    from stepvad.benchmark.scorers import Scorer
    from stepvad.formats.labels import FrameLabels

_HOME = {
    "CustomDataset": "benchmark.custom",
    "CustomMethod": "benchmark.custom",
    "Dataset": "benchmark.datasets",
    "Evaluation": "benchmark.protocol",
    "FrameLabels": "formats.labels",
    "Interval": "benchmark.intervals",
    "MethodResult": "benchmark.comparison",
    "ResultRow": "benchmark.protocol",
    "Scorer": "benchmark.scorers",
    "Spread": "benchmark.intervals",
    "auroc": "benchmark.metrics",
    "average_precision": "benchmark.metrics",
    "compare": "benchmark.comparison",
    "equal_error_rate": "benchmark.metrics",
    "evaluate": "benchmark.protocol",
    "open_dataset": "benchmark.datasets",
}

__all__ = [
    "CustomDataset",
    "CustomMethod",
    "Dataset",
    "Evaluation",
    "FrameLabels",
    "Interval",
    "MethodResult",
    "ResultRow",
    "Scorer",
    "Spread",
    "auroc",
    "average_precision",
    "compare",
    "equal_error_rate",
    "evaluate",
    "open_dataset",
]


if not TYPE_CHECKING:  # a type checker sees the imports above, and no other name

    def __getattr__(name: str) -> object:
        """Load a public name on first use: most need scipy, and some data sets much more."""
        if name not in _HOME:
            raise AttributeError(f"module 'stepvad.benchmark' has no attribute {name!r}")
        value = getattr(import_module(f"stepvad.{_HOME[name]}"), name)
        globals()[name] = value
        return value
