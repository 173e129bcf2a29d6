"""A small archive of box tracks, arrays and all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TRACKS = ((2, 0, 0, 40), (2, 3, 5, 30), (0, 1, 0, 30), (3, 2, 4, 40), (1, 0, 2, 40))
"""Clip, track, first frame and number of boxes."""


def arrays() -> dict[str, NDArray[Any]]:
    """Two training and two test clips, not sorted by name; boxes that move and breathe."""
    rng = np.random.default_rng(0)
    columns: dict[str, list[NDArray[Any]]] = {"clip": [], "track": [], "frame": [], "kpts": []}
    for clip, track, first, n_boxes in sorted(TRACKS):
        start = rng.uniform(100, 300, 2) + rng.normal(0, 3, (n_boxes, 2)).cumsum(axis=0)
        size = np.array([40.0, 90.0]) + rng.normal(0, 2, (n_boxes, 2))
        columns["clip"].append(np.full(n_boxes, clip, np.int16))
        columns["track"].append(np.full(n_boxes, track, np.int32))
        columns["frame"].append(np.arange(first, first + n_boxes, dtype=np.int32))
        columns["kpts"].append(np.stack([start, start + size], axis=1).astype(np.float32))
    abnormal = np.zeros(95, np.int8)
    abnormal[[*range(20, 30), 94]] = 1
    return {name: np.concatenate(parts) for name, parts in columns.items()} | {
        "clip_names": np.array(["01_002", "01_0130", "01_001", "01_0014"]),
        "clip_split": np.array([0, 1, 0, 1], np.int8),
        "gt": abnormal,
        "gt_clip": np.array(["01_0014", "01_0130"]),
        "gt_len": np.array([50, 45], np.int32),
    }


def write_archive(root: Path, found: dict[str, NDArray[Any]] | None = None) -> Path:
    """The directory with the archive in it."""
    root.mkdir(parents=True, exist_ok=True)
    named: dict[str, Any] = {**(arrays() if found is None else found)}
    np.savez_compressed(root / "tracks.npz", **named)
    return root
