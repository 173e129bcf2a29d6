"""Scores of a shard as Parquet: the same scores give the same bytes.

One row is one window: `clip`, `track_id`, its last `frame`, `A`, `c`, and `E`, the standardised
energy at each noise scale, if it was asked for. The metadata says under `stepvad-scores` what they
were made of; nothing in the file tells the time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from stepvad.errors import DataError, MissingExtraError, StepvadError
from stepvad.scoring import WindowScores

METADATA_KEY = b"stepvad-scores"
FORMAT = 1
ROW_GROUP = 131_072
"""Windows of a row group, and windows held in memory until they are written."""


@dataclass(frozen=True, slots=True, eq=False)
class ClipScores:
    """Scores of some windows of a clip, which may go on in the next."""

    clip: str
    windows: WindowScores


class Writer:
    """A file of scores under way."""

    def __init__(self, path: Path, n_scales: int | None) -> None:
        self._pyarrow, parquet = _pyarrow()
        self._schema = _schema(n_scales, self._pyarrow)
        self._n_scales = n_scales
        self._file = parquet.ParquetWriter(
            path,
            self._schema,
            version="2.6",
            compression="zstd",
            compression_level=1,
            use_dictionary=["clip", "track_id"],
            data_page_version="1.0",
            write_page_checksum=True,
            store_schema=True,
        )
        self._waiting: list[ClipScores] = []
        self._n_waiting = 0

    def add(self, scores: ClipScores) -> None:
        """Write further windows; those of a clip stand together."""
        self._waiting.append(scores)
        self._n_waiting += len(scores.windows)
        while self._n_waiting >= ROW_GROUP:
            self._write(ROW_GROUP)

    def close(self, facts: Mapping[str, Any]) -> None:
        """Write the rest, and what the file is."""
        if self._n_waiting:
            self._write(self._n_waiting)
        text = json.dumps({"format": FORMAT, **facts}, sort_keys=True)
        self._file.add_key_value_metadata({METADATA_KEY: text.encode()})
        self._file.close()

    def abandon(self) -> None:
        """Let go of a file that is not wanted."""
        self._file.close()

    def _write(self, n_rows: int) -> None:
        taken, rest, n_taken = [], [], 0
        for scores in self._waiting:
            wanted = min(n_rows - n_taken, len(scores.windows))
            if wanted:
                taken.append(ClipScores(scores.clip, scores.windows.part(slice(wanted))))
                n_taken += wanted
            if wanted < len(scores.windows):
                rest.append(ClipScores(scores.clip, scores.windows.part(slice(wanted, None))))
        self._waiting = rest
        self._n_waiting -= n_taken
        self._file.write_table(self._table(taken), row_group_size=ROW_GROUP)

    def _table(self, parts: list[ClipScores]) -> Any:
        pyarrow = self._pyarrow
        names = list(dict.fromkeys(part.clip for part in parts))
        number = {name: at for at, name in enumerate(names)}
        lengths = [len(part.windows) for part in parts]
        codes = np.repeat(np.array([number[part.clip] for part in parts], np.int32), lengths)
        columns = [pyarrow.DictionaryArray.from_arrays(codes, names).cast(pyarrow.string())]
        columns += [
            pyarrow.array(np.concatenate([getattr(part.windows, name) for part in parts]))
            for name in ("track_id", "frame", "A", "c")
        ]
        if self._n_scales is not None:
            energies = np.concatenate([part.windows.E for part in parts]).ravel()
            columns.append(pyarrow.FixedSizeListArray.from_arrays(energies, self._n_scales))
        return pyarrow.table(columns, schema=self._schema)


@contextmanager
def writing(path: Path, n_scales: int | None) -> Iterator[Writer]:
    """A writer whose troubles with the disk are told as such."""
    writer = None
    try:
        writer = Writer(path, n_scales)
        yield writer
    except OSError as error:
        raise StepvadError(
            f"scores: expected a place that can be written, got: {error.strerror or error}",
            hint="check the free space",
        ) from error
    finally:
        if writer is not None:
            writer.abandon()


def read_facts(file: BinaryIO, name: str) -> dict[str, Any]:
    """What a file of scores says of itself."""
    _, parquet = _pyarrow()
    with _named(name):
        metadata = (parquet.read_metadata(file).metadata or {}).get(METADATA_KEY)
    return _decoded(metadata, name)


def read_scores(file: BinaryIO, name: str) -> Iterator[ClipScores]:
    """The scores of a file in its order, some at a time, without energies."""
    _, parquet = _pyarrow()
    columns = ["clip", "track_id", "frame", "A", "c"]
    with _named(name), parquet.ParquetFile(file, page_checksum_verification=True) as opened:
        _decoded((opened.metadata.metadata or {}).get(METADATA_KEY), name)
        for batch in opened.iter_batches(batch_size=ROW_GROUP, columns=columns):
            clips = batch.column("clip").dictionary_encode()
            names, codes = clips.dictionary.to_pylist(), clips.indices.to_numpy()
            track_id, frame, score, c = (batch.column(name).to_numpy() for name in columns[1:])
            nothing = np.empty((len(score), 0), np.float32)
            windows = WindowScores(track_id, frame, c, nothing, score)
            edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
            for first, end in pairwise(edges):
                yield ClipScores(names[codes[first]], windows.part(slice(first, end)))


def _schema(n_scales: int | None, pyarrow: Any) -> Any:
    whole, number = pyarrow.int64(), pyarrow.float32()
    types = {"clip": pyarrow.string(), "track_id": whole, "frame": whole, "A": number, "c": number}
    if n_scales is not None:
        types["E"] = pyarrow.list_(number, n_scales)
    return pyarrow.schema([pyarrow.field(name, kind, False) for name, kind in types.items()])


def _decoded(metadata: bytes | None, name: str) -> dict[str, Any]:
    try:
        facts = json.loads(metadata or b"null")
    except ValueError:
        facts = None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise DataError(
            f"{name}: expected scores that archive score wrote, got another file",
            hint="give the directory that archive score wrote to",
        )
    return facts


@contextmanager
def _named(name: str) -> Iterator[None]:
    pyarrow, _ = _pyarrow()
    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"{name}: expected a whole file of scores, got: {reason}",
            hint="delete it and run archive score again",
        ) from error


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("archive", "archive") from error
    return pyarrow, pyarrow.parquet
