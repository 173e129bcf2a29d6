"""Result file of one experiment: window scores in Parquet, with their origin."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepvad.benchmark.protocol import ScoredClip
from stepvad.errors import DataError, MissingExtraError
from stepvad.formats.labels import FrameLabels
from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip
from stepvad.windows import Repairs

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtraError("benchmark", "parquet") from error

KEY = b"stepvad"
"""Metadata key of the scores' origin."""


@dataclass(frozen=True, slots=True, eq=False)
class ExperimentRun:
    """One finished experiment: its origin, and the scored test clips."""

    facts: Mapping[str, Any]
    clips: list[ScoredClip]


def write(clips: Sequence[ScoredClip], facts: Mapping[str, object], path: Path) -> None:
    """Write the scores of all windows of all clips, with `facts` as metadata.

    Energies, or what stands in their place, are written if the scores still have them.
    """
    n_energies = clips[0].scores.windows.E.shape[1] if clips else 0
    windows = WindowScores.join([clip.scores.windows for clip in clips], n_energies)
    lengths = [len(clip.scores.windows) for clip in clips]
    names = pa.array([clip.scores.clip for clip in clips], pa.string())
    table = pa.table(
        {
            "clip": pa.DictionaryArray.from_arrays(
                np.repeat(np.arange(len(clips)), lengths), names
            ),
            "track": windows.track_id,
            "frame": windows.frame,
            "confidence": windows.c,
            "score": windows.A,
            **{f"E{n}": windows.E[:, n] for n in range(n_energies)},
        }
    )
    text = json.dumps({**facts, "clips": names.to_pylist()}, sort_keys=True).encode()
    pq.write_table(table.replace_schema_metadata({KEY: text}), path, compression="zstd")


def read(path: Path, clips: Sequence[tuple[Clip, FrameLabels]]) -> ExperimentRun:
    """Read a result; `clips` are the test clips of its data set, which provide the labels."""
    table = pq.read_table(path)
    facts = json.loads(table.schema.metadata[KEY])
    names = [clip.name for clip, _ in clips]
    if facts.pop("clips") != names:
        raise DataError(
            f"{path}: expected scores of the clips of this data set, got those of others",
            hint="keep the results of different data sets in different directories",
        )
    of_clip = table["clip"].combine_chunks().indices.to_numpy()
    columns = {name: table[name].to_numpy() for name in ("track", "frame", "confidence", "score")}
    kept = [table[name].to_numpy() for name in table.column_names if name.startswith("E")]
    energies = np.column_stack([np.empty((len(table), 0), np.float32), *kept])
    length = int(facts["config"]["T"])
    scored = []
    for number, (clip, labels) in enumerate(clips):
        track, frame, c, score = (column[of_clip == number] for column in columns.values())
        windows = WindowScores(track, frame, c, energies[of_clip == number], score)
        scores = Scores(clip.name, clip.n_frames, length, windows, Repairs(), 0)
        scored.append(ScoredClip(scores, labels, clip.persons_per_frame()))
    return ExperimentRun(facts, scored)
