"""Small Parquet files that claim to hold much."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MANY = 20_000


def long_names(seeds: Path) -> bytes:
    """Clips with names of 200,000 letters, stored once and meant in every row."""
    return _rows(MANY, 3, name="a" * 200_000)


def names_by_prefix(seeds: Path) -> bytes:
    """The same by an encoding that stores of each name how it differs from the one before."""
    return _rows(
        MANY,
        3,
        name="a" * 200_000,
        use_dictionary=False,
        column_encoding={"clip": "DELTA_BYTE_ARRAY"},
    )


def many_joints(seeds: Path) -> bytes:
    """20,000 poses of 2,000 joints that are all the same."""
    return _rows(MANY, 2000)


def many_poses(seeds: Path) -> bytes:
    """Poses that are all zero, by the million."""
    return _rows(2_000_000, 17)


def page_that_claims(seeds: Path, n_bytes: int = 1_400_000_000) -> bytes:
    """A page that says it has gigabytes when unpacked."""
    whole = bytearray(_rows(50, 17, write_page_checksum=True, use_dictionary=False))
    footer = pq.read_metadata(io.BytesIO(bytes(whole)))
    return _with_size(bytes(whole), footer.row_group(0).column(3).data_page_offset, n_bytes)


def _rows(n: int, joints: int, *, name: str = "a", **options: Any) -> bytes:
    """Poses that are all zero, in one row group."""
    numbers = pa.array(np.zeros(n * joints, np.float32))
    lists = pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32) * joints), numbers)
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([name]))
    columns = {"clip": names, "track": np.zeros(n, np.int64), "frame": np.arange(n)}
    table = pa.table(columns | dict.fromkeys(("x", "y", "confidence"), lists))
    if not options.get("use_dictionary", True):
        table = table.slice(0, 5000)
        table = table.set_column(0, "clip", table["clip"].cast(pa.string()))
    out = io.BytesIO()
    defaults: dict[str, Any] = {"compression": "zstd", "store_schema": False}
    pq.write_table(table, out, row_group_size=n, **(defaults | options))
    return out.getvalue()


def _with_size(data: bytes, start: int, size: int) -> bytes:
    """A page whose header says another size; its checksum makes room for the longer number.

    The header is in thrift's compact protocol: a byte for each field, then a number of 7 bits in
    each byte, of which zeros may fill any place.
    """
    at, numbers = start, []
    for _ in range(4):  # type, size when unpacked, size, checksum
        assert data[at] == 0x15
        end = at + 1
        while data[end] & 0x80:
            end += 1
        numbers.append(data[at + 1 : end + 1])
        at = end + 1
    assert data[at] == 0x1C  # the next field; without a checksum it is two on
    header = b"\x15" + numbers[0] + b"\x15" + _varint(size << 1) + b"\x15"
    room = at - start - len(header)
    packed = numbers[2][:-1] + bytes([numbers[2][-1] | 0x80])
    packed += b"\x80" * (room - len(packed) - 1) + b"\0"
    return data[:start] + header + packed + b"\x2c" + data[at + 1 :]


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])
