"""Untrusted Parquet files: the footer's claims are checked, and rows are read in batches.

A page that claims more than the footer is Arrow's to refuse; the workers of an archive have a limit
of memory besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO

from stepvad.errors import DataError, MissingExtraError
from stepvad.files import bounded
from stepvad.formats import limits

BUFFER = 1 << 18
"""Bytes of a column read at once, whatever the size of its row group."""
MAX_LISTED = 100_000
"""Most row groups or columns of a file."""
BATCH_VALUES = 1 << 22
"""Values of a column decompressed at once."""
VALUE_BYTES = 8
"""Memory of one value, including its offset in a list."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A Parquet file whose footer is checked, read one row group at a time."""

    file: Any
    """A `pyarrow.parquet.ParquetFile`."""
    columns: Sequence[str]
    size: int
    """Size of the file in bytes."""

    def __post_init__(self) -> None:
        """Reject a footer that declares too much, before any page is read."""
        most, claimed = bounded.most_unpacked(self.size), 0
        for group in range(self.file.metadata.num_row_groups):
            n_rows = max(self.file.metadata.row_group(group).num_rows, 1)
            for chunk in self._chunks(group):
                name, _, inner = chunk.path_in_schema.partition(".")
                if chunk.num_values < 0 or (chunk.num_values > n_rows and not inner):
                    raise _damaged(f"column {name}: {chunk.num_values:,} values in {n_rows:,} rows")
                limits.check_joints(-(-chunk.num_values // n_rows))
                if "DELTA_BYTE_ARRAY" in chunk.encodings:  # a few bytes for a name of any length
                    raise DataError(
                        f"column {name}: expected plain or dictionary encoding, got "
                        "DELTA_BYTE_ARRAY",
                        hint="write the file again with another encoding",
                    )
                claimed += max(VALUE_BYTES * chunk.num_values, chunk.total_uncompressed_size)
        if claimed > most:
            raise DataError(
                f"expected rows of up to {most / 1e6:,.0f} MB in a file of {self.size:,} bytes, "
                "got more",
                hint="write the file again without compression and dictionaries",
            )

    def batches(self, rows: int, *, threads: bool = True) -> Iterator[Any]:
        """Yield batches of up to `rows` rows; fewer if the rows are long."""
        for group in range(self.file.metadata.num_row_groups):
            n_rows = max(self.file.metadata.row_group(group).num_rows, 1)
            longest = max((chunk.num_values for chunk in self._chunks(group)), default=0)
            each = max(-(-longest // n_rows), 1)
            yield from self.file.iter_batches(
                batch_size=max(min(rows, BATCH_VALUES // each), 1),
                row_groups=[group],
                columns=list(self.columns),
                use_threads=threads,
            )

    def _chunks(self, group: int) -> Iterator[Any]:
        """The column chunks of the selected columns."""
        about = self.file.metadata.row_group(group)
        for number in range(about.num_columns):
            chunk = about.column(number)
            if chunk.path_in_schema.partition(".")[0] in self.columns:
                yield chunk


@contextmanager
def opened(
    source: Path | BinaryIO,
    columns: Sequence[str],
    *,
    texts: Sequence[str],
    feature: str,
    extra: str,
) -> Iterator[Checked]:
    """Open the given columns of a Parquet file; strings in `texts` columns are stored once each."""
    _, parquet = pyarrow_of(feature, extra)
    with _parquet(parquet, source, texts) as file:
        size = source.stat().st_size if isinstance(source, Path) else source.seek(0, SEEK_END)
        yield Checked(file, columns, size)


def read_metadata(source: Path | BinaryIO, *, feature: str, extra: str) -> dict[bytes, bytes]:
    """The key-value metadata of a file."""
    _, parquet = pyarrow_of(feature, extra)
    with _parquet(parquet, source, ()) as file:
        return dict(file.metadata.metadata or {})


@contextmanager
def as_data_errors(expected: str, *, feature: str, extra: str) -> Iterator[None]:
    """Convert errors of Arrow into a `DataError` that says what was expected."""
    pyarrow, _ = pyarrow_of(feature, extra)
    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"expected {expected}, got: {reason}",
            hint="check the path; if the file is truncated or damaged, write or copy it again",
        ) from error


def pyarrow_of(feature: str, extra: str) -> tuple[Any, Any]:
    """Import `pyarrow` and `pyarrow.parquet`, which only Parquet files need."""
    try:
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(feature, extra) from error
    return pyarrow, pyarrow.parquet


def _parquet(parquet: Any, source: Path | BinaryIO, texts: Sequence[str]) -> Any:
    options: dict[str, Any] = {
        "pre_buffer": False,
        "page_checksum_verification": True,
        "buffer_size": BUFFER,
        "thrift_container_size_limit": MAX_LISTED,
    }
    about = parquet.ParquetFile(source, **options).metadata
    paths = {about.schema.column(number).path for number in range(about.num_columns)}
    there = [name for name in texts if name in paths]  # missing columns are reported elsewhere
    return parquet.ParquetFile(source, metadata=about, read_dictionary=there, **options)


def _damaged(got: str) -> DataError:
    return DataError(
        f"expected a footer that fits the rows, got {got}",
        hint="the file is damaged; write or copy it again",
    )
