"""Scores of a shard as Parquet: the same scores give the same bytes.

One row is one window: `clip`, `track_id`, its last `frame`, `A`, `c`, and `E`, the standardised
energy at each noise scale, if it was asked for. The metadata says under `stepvad-scores` what they
were made of; nothing in the file tells the time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from stepvad.archive.scorefacts import ScoreFacts
from stepvad.errors import DataError, StepvadError
from stepvad.formats import jsonfile, parquetfile
from stepvad.formats.trackrows import named
from stepvad.formats.tracks import located
from stepvad.model.scoring import WindowScores

METADATA_KEY = b"stepvad-scores"
COLUMNS = ("clip", "track_id", "frame", "A", "c")
EXTRA: Mapping[str, str] = {"feature": "archive", "extra": "archive"}
FREE_ROWS = 100_000
"""Of any file; above that one for every byte, for scores hardly shrink."""
ROW_GROUP = 131_072
"""Windows of a row group, and windows held in memory until they are written."""


@dataclass(frozen=True, slots=True, eq=False)
class ClipScores:
    """Scores of some windows of a clip, which may go on in the next."""

    clip: str
    windows: WindowScores


class ScoreFileWriter:
    """A file of scores under way; trouble with the disk is told as such."""

    def __init__(self, path: Path, n_scales: int | None) -> None:
        self._pyarrow, parquet = parquetfile.pyarrow_of(**EXTRA)
        self._schema = _schema(n_scales, self._pyarrow)
        self._n_scales = n_scales
        with _writable():
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

    def close(self, facts: ScoreFacts) -> None:
        """Write the rest, and what the file is."""
        if self._n_waiting:
            self._write(self._n_waiting)
        text = json.dumps(facts.to_json(), sort_keys=True)
        with _writable():
            self._file.add_key_value_metadata({METADATA_KEY: text.encode()})
            self._file.close()

    def abandon(self) -> None:
        """Let go of a file that is not wanted."""
        with suppress(OSError):
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
        with _writable():
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
def writing(path: Path, n_scales: int | None) -> Iterator[ScoreFileWriter]:
    """A writer that lets go of its file, whatever happens."""
    writer = ScoreFileWriter(path, n_scales)
    try:
        yield writer
    finally:
        writer.abandon()


def read_facts(file: BinaryIO, name: str) -> ScoreFacts:
    """What a file of scores says of itself."""
    with located(name):
        with _readable():
            metadata = parquetfile.read_metadata(file, **EXTRA).get(METADATA_KEY)
        return _decoded(metadata)


def read_scores(file: BinaryIO, name: str) -> Iterator[ClipScores]:
    """The scores of a file in its order, some at a time, without energies."""
    with located(name), _readable():
        yield from _scores(file)


def _scores(file: BinaryIO) -> Iterator[ClipScores]:
    pyarrow, _ = parquetfile.pyarrow_of(**EXTRA)
    with parquetfile.opened(file, COLUMNS, texts=["clip"], **EXTRA) as checked:
        _decoded((checked.file.metadata.metadata or {}).get(METADATA_KEY))
        _check_columns(checked.file.schema_arrow, pyarrow)
        if checked.n_rows > FREE_ROWS + checked.size:
            raise _unlike(f"{checked.n_rows:,} rows in {checked.size:,} bytes")
        for batch in checked.batches(ROW_GROUP):
            batch.validate(full=True)
            if any(column.null_count for column in batch.columns):
                raise _unlike("empty cells")
            names, codes = named(batch.column("clip"))
            track_id, frame, score, c = (batch.column(name).to_numpy() for name in COLUMNS[1:])
            nothing = np.empty((len(score), 0), np.float32)
            windows = WindowScores(track_id, frame, c, nothing, score)
            edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
            for first, end in pairwise(edges if len(codes) else []):
                _check_order(windows, slice(first, end))
                yield ClipScores(names[codes[first]], windows.part(slice(first, end)))


def _check_order(windows: WindowScores, rows: slice) -> None:
    """Refuse windows of a clip that are not in the order of tracks and frames, each once."""
    track, frame = np.diff(windows.track_id[rows]), np.diff(windows.frame[rows])
    if not ((track > 0) | ((track == 0) & (frame > 0))).all():
        raise _unlike("windows twice or in another order")


def _check_columns(schema: Any, pyarrow: Any) -> None:
    """Refuse a file that does not have our columns, each once and of our types."""
    expected = _schema(None, pyarrow)
    for name in COLUMNS:
        found = [schema.field(at).type for at in schema.get_all_field_indices(name)]
        kinds = [kind.value_type if pyarrow.types.is_dictionary(kind) else kind for kind in found]
        if kinds != [expected.field(name).type]:
            raise _unlike(f"column {name} of type {', '.join(map(str, found)) or 'none'}")


def _schema(n_scales: int | None, pyarrow: Any) -> Any:
    whole, number = pyarrow.int64(), pyarrow.float32()
    types = {"clip": pyarrow.string(), "track_id": whole, "frame": whole, "A": number, "c": number}
    if n_scales is not None:
        types["E"] = pyarrow.list_(number, n_scales)
    return pyarrow.schema([pyarrow.field(name, kind, False) for name, kind in types.items()])


def _decoded(metadata: bytes | None) -> ScoreFacts:
    if metadata is None:
        raise _unlike("another file")
    try:
        return ScoreFacts.from_json(jsonfile.parse(metadata))
    except DataError as error:
        raise _unlike(f"other metadata: {error.problem}") from error


def _unlike(got: str) -> DataError:
    return DataError(
        f"expected scores that archive score wrote, got {got}",
        hint="give the directory that archive score wrote to, or delete the file and score again",
    )


def _readable() -> AbstractContextManager[None]:
    return parquetfile.as_data_errors("a whole file of scores", **EXTRA)


@contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StepvadError(
            f"scores: expected a place that can be written, got: {error.strerror or error}",
            hint="check the free space",
        ) from error
