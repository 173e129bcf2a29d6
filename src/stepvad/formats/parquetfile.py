"""Untrusted Parquet files: page sizes are checked before the pages are decompressed.

A page of a few bytes may declare gigabytes, and Arrow allocates them. The page headers, which no
checksum covers, are therefore parsed here first (Thrift's compact protocol, as in the Parquet
specification), one row group at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO

from stepvad.errors import DataError, MissingExtraError
from stepvad.files import bounded
from stepvad.formats import limits

BUFFER = 1 << 18
"""Bytes of a column read at once, whatever the size of its row group."""
HEADER_BYTES = 1 << 16
"""Longest page header; it may contain the smallest and largest value."""
MAX_LISTED = 100_000
"""Most row groups or columns of a file."""
BATCH_VALUES = 1 << 22
"""Values of a column decompressed at once."""
VALUE_BYTES = 8
"""Memory of one value, including its offset in a list."""
DELTA_BYTE_ARRAY = 7
"""The encoding that stores each string as a difference from the previous one."""
DATA, DICTIONARY, DATA_V2 = 5, 7, 8  # fields of a page header
_DEEPEST = 8

ThriftFields = dict[int, Any]


@dataclass(slots=True)
class Checked:
    """A Parquet file read one row group at a time, each after its page headers are checked."""

    file: Any
    """A `pyarrow.parquet.ParquetFile`."""
    columns: Sequence[str]
    _source: BinaryIO
    size: int
    """Size of the file in bytes."""
    _left: int = field(init=False)
    """Bytes that may still be decompressed."""

    def __post_init__(self) -> None:
        """Reject a footer that declares too many values, before any page is read."""
        self._left = bounded.most_unpacked(self.size)
        claimed = 0
        for group in range(self.file.metadata.num_row_groups):
            for chunk in self._chunks(group):
                claimed += VALUE_BYTES * max(chunk.num_values, 0)
        self._check_room(claimed, self._left)

    @property
    def n_rows(self) -> int:
        """Rows of all row groups, according to the footer."""
        about = self.file.metadata
        return sum(about.row_group(group).num_rows for group in range(about.num_row_groups))

    def batches(self, rows: int, *, threads: bool = True) -> Iterator[Any]:
        """Yield batches of up to `rows` rows; fewer if the rows are long."""
        for group in range(self.file.metadata.num_row_groups):
            longest = self._check_pages(group)
            n_rows = max(self.file.metadata.row_group(group).num_rows, 1)
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

    def _check_pages(self, group: int) -> int:
        """Check the pages of a row group, and return the value count of its longest column."""
        n_rows, longest = self.file.metadata.row_group(group).num_rows, 0
        for chunk in self._chunks(group):
            name, _, inner = chunk.path_in_schema.partition(".")
            if chunk.num_values < 0 or (chunk.num_values != n_rows and not inner):
                raise _damaged(f"column {name}: {chunk.num_values:,} values in {n_rows:,} rows")
            limits.check_joints(-(-chunk.num_values // max(n_rows, 1)))
            unpacked, values = self._unpacked(chunk)
            if values != chunk.num_values:
                raise _damaged(f"{values:,} of {chunk.num_values:,} values in pages")
            needed = max(unpacked, VALUE_BYTES * values)
            self._check_room(needed, self._left)
            self._left -= needed
            longest = max(longest, values)
        return longest

    def _unpacked(self, chunk: Any) -> tuple[int, int]:
        """Decompressed size in bytes and number of values of a column chunk's pages."""
        starts = [chunk.data_page_offset]
        if chunk.dictionary_page_offset:  # some writers store 0 if there is none
            starts.append(chunk.dictionary_page_offset)
        at, end = min(starts), min(starts) + chunk.total_compressed_size
        if not 0 < at <= end <= self.size:
            raise _damaged(f"a column from byte {at} to {end}")
        unpacked, values = 0, 0
        while values < chunk.num_values and at < end:
            header, length = self._header(at)
            size, packed = _number(header, 2), _number(header, 3)
            if size < 0 or packed < 0 or at + length + packed > self.size:
                raise _damaged(f"a page of {packed} bytes at {at}")
            unpacked += size
            self._check_room(unpacked, self._left)
            values += _values(header, size, is_text=chunk.physical_type == "BYTE_ARRAY")
            at += length + packed
        return unpacked, values

    def _header(self, at: int) -> tuple[ThriftFields, int]:
        """The header of the page at byte `at`, and its length."""
        length = 256
        while True:
            self._source.seek(at)
            data = self._source.read(length)
            try:
                return _struct(data, 0)
            except (IndexError, ValueError) as error:
                if length >= HEADER_BYTES or len(data) < length:
                    raise _damaged(f"no page at byte {at}") from error
                length *= 16

    def _check_room(self, needed: int, left: int) -> None:
        if needed > left:
            most = bounded.most_unpacked(self.size)
            raise DataError(
                f"expected rows of up to {most / 1e6:,.0f} MB in a file of {self.size:,} bytes, "
                "got more",
                hint="write the file again without compression and dictionaries",
            )


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
    if isinstance(source, Path):
        with source.open("rb") as handle, _parquet(parquet, source, texts) as file:
            yield Checked(file, columns, handle, handle.seek(0, SEEK_END))
        return
    with _parquet(parquet, source, texts) as file:
        yield Checked(file, columns, source, source.seek(0, SEEK_END))


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


def _values(header: ThriftFields, size: int, *, is_text: bool) -> int:
    """The number of values in a data page; 0 for a dictionary page."""
    kind = next((kind for kind in (DICTIONARY, DATA, DATA_V2) if kind in header), DATA)
    about = header.get(kind)
    if not isinstance(about, dict):
        raise _damaged("a page of another kind")
    values, encoding = _number(about, 1), _number(about, 4 if kind == DATA_V2 else 2)
    if values < 0 or (kind == DICTIONARY and values > size):
        raise _damaged(f"a page of {values:,} values in {size:,} bytes")
    if kind == DICTIONARY:
        return 0
    if is_text and encoding == DELTA_BYTE_ARRAY:
        raise DataError(
            "expected names in plain or dictionary encoding, got DELTA_BYTE_ARRAY",
            hint="write the file again with another encoding",
        )
    return values


def _number(fields: ThriftFields, at: int) -> int:
    """An integer field of a struct; -1 if missing."""
    value = fields.get(at)
    return value if type(value) is int else -1


def _damaged(got: str) -> DataError:
    return DataError(
        f"expected pages as in the file's footer, got {got}",
        hint="the file is damaged; write or copy it again",
    )


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[ThriftFields, int]:
    """The integers and nested structs of a struct by field number, and its end offset."""
    if depth > _DEEPEST:
        raise ValueError("too deep")
    fields: ThriftFields = {}
    number = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return fields, at
        kind, delta = head & 0x0F, head >> 4
        if delta:
            number += delta
        else:
            number, at = _whole(data, at)
        fields[number], at = _value(data, at, kind, depth)


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:  # a boolean, encoded in the field header
            return kind == 1, at
        case 3:
            return data[at], at + 1
        case 4 | 5 | 6:
            return _whole(data, at)
        case 7:
            return None, _within(data, at + 8)
        case 8:
            length, at = _varint(data, at)
            return None, _within(data, at + length)
        case 12:
            return _struct(data, at, depth + 1)
        case _:  # lists, sets and maps: no page header has one
            raise ValueError(f"a value of kind {kind}")


def _whole(data: bytes, at: int) -> tuple[int, int]:
    """A signed integer, zigzag-encoded."""
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise ValueError("a number that does not end")


def _within(data: bytes, at: int) -> int:
    if at > len(data):
        raise IndexError(at)
    return at
