"""Scores of a shard as Parquet; identical scores give identical bytes.

One row is one window: `clip`, `track_id`, its last `frame`, `A`, `c`, `seen`, and optionally `E`,
the standardised energy at each noise scale. The metadata under `stepvad-scores` describes the model
and the inputs; the file contains no timestamp.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
from msgspec import Meta

from stepvad.codec import Count, decode, to_plain
from stepvad.errors import DataError, StepvadError, os_reason
from stepvad.formats.reading import located
from stepvad.formats.tracks import as_data_errors, import_pyarrow, open_parquet
from stepvad.model.scoring import WindowScores
from stepvad.poses import MAX_FPS

METADATA_KEY = b"stepvad-scores"
COLUMNS = ("clip", "track_id", "frame", "A", "c", "seen")
EXTRA = ("archive", "archive")
ROW_GROUP = 131_072
"""Least windows in a row group but the last, and about the most that wait to be written."""

FORMAT = 1
"""Layout version of score files and manifests."""


@dataclass(frozen=True, slots=True)
class ScoreIdentity:
    """Properties that all scores in one place must share."""

    model_sha256: str
    engine: str
    energies: bool

    @property
    def identity(self) -> ScoreIdentity:
        """These properties alone."""
        return ScoreIdentity(self.model_sha256, self.engine, self.energies)


@dataclass(frozen=True, slots=True)
class InputFacts:
    """A pose file that was scored; the digest is None if the file could not be scored."""

    name: str
    size: Count
    sha256: str | None


@dataclass(slots=True)
class ClipWindows:
    """A clip and its number of windows, updated during scoring."""

    fps: Annotated[float, Meta(gt=0, lt=MAX_FPS)] | None
    n_frames: Count
    windows: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFacts(ScoreIdentity):
    """Metadata of a score file."""

    stepvad: str
    """Version of the library."""
    inputs: tuple[InputFacts, ...]
    failed: dict[str, str]
    """Pose files without scores, and why."""
    clips: dict[str, ClipWindows]
    windows: Count
    flat_windows: Count
    counts: dict[str, Count]
    """Repairs made to the poses."""
    format: Literal[1] = 1


@dataclass(frozen=True, slots=True, eq=False)
class ClipScores:
    """Scores of consecutive windows of a clip; the clip may continue in the next part."""

    clip: str
    windows: WindowScores


class ScoreFileWriter:
    """Writes a score file; raises `StepvadError` on disk errors.

    Leaving the `with` block closes the file even after an error.
    """

    def __init__(self, path: Path, n_scales: int | None) -> None:
        pyarrow = import_pyarrow(*EXTRA)
        self._n_scales = n_scales
        with _writable():
            self._file = pyarrow.parquet.ParquetWriter(
                path,
                _schema(n_scales, pyarrow),
                version="2.6",
                compression="zstd",
                compression_level=1,
                use_dictionary=["clip", "track_id", "seen"],
                data_page_version="1.0",
                write_page_checksum=True,
                store_schema=True,
            )
        self._waiting: list[ClipScores] = []
        self._n_waiting = 0

    def append(self, scores: ClipScores) -> None:
        """Add windows; those of a clip must be contiguous."""
        self._waiting.append(scores)
        self._n_waiting += len(scores.windows)
        if self._n_waiting >= ROW_GROUP:
            self._write()

    def close(self, facts: ScoreFacts) -> None:
        """Flush the remaining windows and write the metadata."""
        if self._n_waiting:
            self._write()
        text = json.dumps(to_plain(facts), sort_keys=True)
        with _writable():
            self._file.add_key_value_metadata({METADATA_KEY: text.encode()})
            self._file.close()

    def __enter__(self) -> ScoreFileWriter:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            self._file.close()

    def _write(self) -> None:
        with _writable():
            self._file.write_table(to_table(self._waiting, self._n_scales))
        self._waiting, self._n_waiting = [], 0


def to_table(parts: Sequence[ClipScores], n_scales: int | None) -> Any:
    """Scores as an Arrow table, a row per window; with energies at each of `n_scales`."""
    pyarrow = import_pyarrow(*EXTRA)
    schema = _schema(n_scales, pyarrow)
    if not parts:
        return schema.empty_table()
    # every window with the number of its clip's name, (n,), then the columns of numbers
    names = list(dict.fromkeys(part.clip for part in parts))
    number = {name: at for at, name in enumerate(names)}
    lengths = [len(part.windows) for part in parts]
    codes = np.repeat(np.array([number[part.clip] for part in parts], np.int32), lengths)
    columns = [pyarrow.DictionaryArray.from_arrays(codes, names).cast(pyarrow.string())]
    columns += [
        pyarrow.array(np.concatenate([getattr(part.windows, name) for part in parts]))
        for name in COLUMNS[1:]
    ]
    if n_scales is not None:
        energies = np.concatenate([part.windows.E for part in parts]).ravel()
        columns.append(pyarrow.FixedSizeListArray.from_arrays(energies, n_scales))
    return pyarrow.table(columns, schema=schema)


def read_facts(file: BinaryIO, name: str) -> ScoreFacts:
    """Read the metadata of a score file."""
    import_pyarrow(*EXTRA)
    with located(name):
        with as_data_errors("a whole file of scores"), open_parquet(file) as scores:
            metadata = (scores.metadata.metadata or {}).get(METADATA_KEY)
        if metadata is None:
            raise _unlike("another file")
        try:
            return decode(ScoreFacts, metadata, "scores")
        except DataError as error:
            raise _unlike(f"other metadata: {error.problem}") from error


def _schema(n_scales: int | None, pyarrow: Any) -> Any:
    whole, number = pyarrow.int64(), pyarrow.float32()
    types = {"clip": pyarrow.string(), "track_id": whole, "frame": whole}
    types |= dict.fromkeys(("A", "c", "seen"), number)
    if n_scales is not None:
        types["E"] = pyarrow.list_(number, n_scales)
    return pyarrow.schema([pyarrow.field(name, kind, False) for name, kind in types.items()])


def _unlike(got: str) -> DataError:
    return DataError(
        f"expected scores that archive score wrote, got {got}",
        hint="give the directory that archive score wrote to, or delete the file and score again",
    )


@contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StepvadError(
            f"scores: expected a place that can be written, got: {os_reason(error)}",
            hint="check the free space",
        ) from error
