"""Data sets packed into one NPZ archive: the rows of all clips, and their frame masks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.files import npyfile
from stepvad.formats.labels import FrameLabels
from stepvad.formats.reading import read_bytes

Part = Literal["train", "test"]
Kinds = Mapping[str, tuple[str, int]]
"""Kinds of dtype and number of axes, by the name of an array."""

MAX_BYTES = 1 << 30
PARTS: Mapping[Part, int] = {"train": 0, "test": 1}
"""Values of `clip_split` for training and test clips."""
CLIPS: Kinds = {"clip_names": ("U", 1), "clip_split": ("iu", 1)}
ROWS: Kinds = {"clip": ("iu", 1), "track": ("iu", 1), "frame": ("iu", 1), **CLIPS}
_TRUTH: Kinds = {"gt": ("biu", 1), "gt_clip": ("U", 1), "gt_len": ("iu", 1)}


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive on disk; nothing is read before it is asked for."""

    path: Path
    hint: str
    """What to do if it is damaged or holds something else."""

    def arrays(self, kinds: Kinds) -> dict[str, NDArray[Any]]:
        """The named arrays, checked for dtype kind and number of axes."""
        try:
            found = npyfile.arrays(read_bytes(self.path, most=MAX_BYTES), kinds)
        except DataError as error:
            raise error.located(str(self.path)) from error
        for name, (kind, ndim) in kinds.items():
            if found[name].dtype.kind not in kind or found[name].ndim != ndim:
                raise self.unlike(f"{name} with {ndim} axes, of kind {' or '.join(kind)}")
        return found

    def clip_names(self, part: Part) -> list[str]:
        """Names of the clips of one part."""
        found = self.arrays(CLIPS)
        if len(found["clip_names"]) != len(found["clip_split"]):
            raise self.unlike("a name and a split for every clip")
        return [str(name) for name in found["clip_names"][found["clip_split"] == PARTS[part]]]

    def rows(
        self, found: Mapping[str, NDArray[Any]], part: Part
    ) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Yield name and rows of each clip of one part, by name; rows by track and frame.

        `found` holds the arrays of `ROWS`.
        """
        clip, track, frame = (found[name] for name in ("clip", "track", "frame"))
        names, parts = found["clip_names"], found["clip_split"]
        if not len(clip) == len(track) == len(frame):
            raise self.unlike("as many clips as tracks and frames")
        if len(parts) != len(names) or not np.isin(clip, np.arange(len(names))).all():
            raise self.unlike("a name and a split for every clip of a row")
        order = np.lexsort((frame, track, clip))
        edges = np.searchsorted(clip[order], np.arange(len(names) + 1))
        wanted = np.flatnonzero(parts == PARTS[part])
        for number in wanted[np.argsort(names[wanted])].tolist():
            yield str(names[number]), order[edges[number] : edges[number + 1]]

    def labels(self) -> dict[str, FrameLabels]:
        """Frame masks by clip name, sorted, in which every frame counts."""
        return {name: FrameLabels.all_counted(mask) for name, mask in self.masks("gt").items()}

    def masks(self, name: str) -> dict[str, NDArray[np.bool_]]:
        """One array of 0 and 1 over the frames of all labelled clips, split by clip and sorted."""
        found = self.arrays({**_TRUTH, name: _TRUTH["gt"]})
        values, names, lengths = (found[key] for key in (name, "gt_clip", "gt_len"))
        fits = len(names) == len(lengths) and (lengths >= 0).all() and lengths.sum() == len(values)
        if not fits or not np.isin(values, (0, 1)).all() or len(np.unique(names)) != len(names):
            raise self.unlike(f"gt_len frames of 0 or 1 in {name} for every clip of gt_clip")
        parts = np.split(values.astype(np.bool_), np.cumsum(lengths)[:-1])
        return dict(sorted(zip(map(str, names), parts, strict=True)))

    def unlike(self, expected: str) -> DataError:
        """The error for arrays that do not fit together."""
        return DataError(f"{self.path}: expected {expected}, got something else", hint=self.hint)
