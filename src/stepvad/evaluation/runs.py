"""Result file of one experiment: window scores in Parquet, with their origin."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stepvad.errors import DataError, MissingExtraError
from stepvad.evaluation.protocol import ScoredClip
from stepvad.formats.labels import FrameLabels
from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip
from stepvad.windows import Repairs

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtraError("a table of results", "parquet") from error

KEY = b"stepvad"
"""Metadata key of the scores' origin."""
COLUMNS = ("track", "frame", "confidence", "score")
LACKING = "lacking"
"""The column of the frames that windows are short of their clip's span, if any are."""
AGAIN = "delete it to run the experiment again"


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
    columns = (windows.track_id, windows.frame, windows.c, windows.A)
    table = pa.table(
        {
            "clip": pa.DictionaryArray.from_arrays(
                np.repeat(np.arange(len(clips)), lengths), names
            ),
            **dict(zip(COLUMNS, columns, strict=True)),
            **({LACKING: windows.lacking} if windows.lacking.any() else {}),
            **{f"E{n}": windows.E[:, n] for n in range(n_energies)},
        }
    )
    about = {**facts, "clips": names.to_pylist(), "spans": [clip.scores.T for clip in clips]}
    text = json.dumps(about, sort_keys=True).encode()
    whole = table.replace_schema_metadata({KEY: text})
    pq.write_table(whole, path, compression="zstd", write_page_checksum=True)


def read(path: Path, clips: Sequence[tuple[Clip, FrameLabels]]) -> ExperimentRun:
    """Read a result; `clips` are the test clips of its data set, which provide the labels."""
    table, facts = _contents(path)
    names = [clip.name for clip, _ in clips]
    if facts.pop("clips") != names:
        raise DataError(
            f"{path}: expected scores of the clips of this data set, got those of others",
            hint="keep the results of different data sets in different directories",
        )
    spans = facts.pop("spans")
    of_clip = table["clip"].combine_chunks().indices.to_numpy()
    windows = _windows(table)
    scored = []
    for number, ((clip, labels), span) in enumerate(zip(clips, spans, strict=True)):
        own = windows.part(np.flatnonzero(of_clip == number))
        scores = Scores(clip.name, clip.n_frames, span, own, Repairs(), 0)
        scored.append(ScoredClip(scores, labels, clip.persons_per_frame()))
    return ExperimentRun(facts, scored)


def _contents(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """The table of a file and its facts; an error if it is damaged or something else."""
    data = path.read_bytes()
    try:
        table = pq.ParquetFile(
            pa.BufferReader(data), pre_buffer=False, page_checksum_verification=True
        ).read(use_threads=False)
        facts = json.loads((table.schema.metadata or {}).get(KEY, b"null"))
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError) as error:
        raise _no_result(path, str(error).partition("\n")[0]) from error
    match facts:
        case {"clips": [*clips], "spans": [*spans]} if len(spans) == len(clips):
            whole = {"clip", *COLUMNS} <= {*table.column_names}
            if whole and pa.types.is_dictionary(table["clip"].type):
                return table, facts
    raise _no_result(path, "a file of another kind")


def _no_result(path: Path, got: str) -> DataError:
    return DataError(f"{path}: expected the result of an experiment, got: {got}", hint=AGAIN)


def _windows(table: pa.Table) -> WindowScores:
    """The scores of the windows of all clips."""
    track, frame, c, score = (table[name].to_numpy() for name in COLUMNS)
    kept = [table[name].to_numpy() for name in table.column_names if name.startswith("E")]
    energies = np.column_stack([np.empty((len(table), 0), np.float32), *kept])
    windows = WindowScores(track, frame, c, energies, score)
    if LACKING in table.column_names:
        return replace(windows, lacking=table[LACKING].to_numpy())
    return windows
