"""Labelled data sets, and the frame-level protocol that measures a detector on them (Sec. 4.1)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepvad.evaluation.comparison import MethodResult, Trials, compare
    from stepvad.evaluation.custom import CustomDataset, CustomMethod
    from stepvad.evaluation.datasets import Dataset, open_dataset
    from stepvad.evaluation.metrics import (
        Interval,
        Spread,
        auroc,
        average_precision,
        equal_error_rate,
    )
    from stepvad.evaluation.protocol import Evaluation, FrameView, ResultRow, Scorer, evaluate
    from stepvad.formats.labels import FrameLabels

_NAMES = {
    "evaluation.comparison": ("MethodResult", "Trials", "compare"),
    "evaluation.custom": ("CustomDataset", "CustomMethod"),
    "evaluation.datasets": ("Dataset", "open_dataset"),
    "evaluation.metrics": ("Interval", "Spread", "auroc", "average_precision", "equal_error_rate"),
    "evaluation.protocol": ("Evaluation", "FrameView", "ResultRow", "Scorer", "evaluate"),
    "formats.labels": ("FrameLabels",),
}

__all__ = [
    "CustomDataset",
    "CustomMethod",
    "Dataset",
    "Evaluation",
    "FrameLabels",
    "FrameView",
    "Interval",
    "MethodResult",
    "ResultRow",
    "Scorer",
    "Spread",
    "Trials",
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
        home = next((module for module, names in _NAMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module 'stepvad.evaluation' has no attribute {name!r}")
        value = getattr(import_module(f"stepvad.{home}"), name)
        globals()[name] = value
        return value
