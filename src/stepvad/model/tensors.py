"""Checks of the arrays of a model file: shapes, types and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = 1e9
"""Every value of a valid model is smaller than this in magnitude."""
SMALLEST = 1e-12
"""Every variance of a valid model is larger than this."""


def checked(
    tensors: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]
) -> list[NDArray[Any]]:
    """The tensors of these names in order, each with its shape checked."""
    for name, shape in shapes.items():
        check_tensor(name, tensors[name], shape)
    return [tensors[name] for name in shapes]


def check_positive(name: str, tensor: NDArray[Any]) -> None:
    """Reject variances that are not positive."""
    if not (tensor > SMALLEST).all():
        raise ValueError(f"tensor {name} must be positive")


def check_tensor(
    name: str, tensor: NDArray[Any], shape: tuple[int, ...], dtype: type | None = None
) -> None:
    """Reject an array of the wrong shape or type, or with values out of range."""
    dtype = dtype or (np.float64 if name in ("E_mean", "E_var") else np.float32)
    if tensor.shape != shape or tensor.dtype != dtype:
        raise ValueError(
            f"tensor {name} must be {np.dtype(dtype).name} of shape {shape}, "
            f"got {tensor.dtype} of {tensor.shape}"
        )
    if not (np.abs(tensor) < LARGEST).all():  # NaN compares false
        raise ValueError(f"tensor {name} must be finite and below {LARGEST:.0e}")
