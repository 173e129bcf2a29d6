"""Small files that claim to hold much: what each costs a reader that believes them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MANY = 20_000
HOLDERS = {"clip": "box tracks", "kpts_lo": "packed trajectories"}
"""Readers of archives, by one of their arrays."""


def far_frame(seeds: Path) -> bytes:
    """One pose at a frame that is 38 days away."""
    pose = {"keypoints": [1.0, 2.0, 0.9] * 3}
    table = {str(frame): pose for frame in range(99)} | {"99999999": pose}
    return json.dumps({"1": table}).encode()


def far_line(seeds: Path) -> bytes:
    """The same in a line of a person's trajectory."""
    return b"99999999" + b",1" * 34


def long_clip(seeds: Path) -> bytes:
    """Metadata that say 100,000,000 frames."""
    return _told(seeds, lambda facts: facts["clips"]["walk"].update(n_frames=100_000_000))


def many_long_clips(seeds: Path) -> bytes:
    """Metadata of a thousand clips of days, without a pose."""
    more = {f"c{i}": {"fps": 30.0, "n_frames": 5_000_000} for i in range(1000)}
    return _told(seeds, lambda facts: facts["clips"].update(more))


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


def page_that_claims(seeds: Path) -> bytes:
    """A page that says it has 1.4 GB when unpacked."""
    whole = bytearray(_rows(50, 17, write_page_checksum=True, use_dictionary=False))
    footer = pq.read_metadata(io.BytesIO(bytes(whole)))
    return _with_size(bytes(whole), footer.row_group(0).column(3).data_page_offset, 1_400_000_000)


def many_levels(seeds: Path) -> bytes:
    """A calibration of 60,000 blocks at 60,000 levels."""
    facts = _calibration(seeds)
    facts["levels"] = [*range(1, 60_001)]
    facts["blocks"] = {"yard": [[1.0, []]] * 60_000}
    return json.dumps(facts, separators=(",", ":")).encode()


def many_marked_levels(seeds: Path) -> bytes:
    """A calibration whose drift values are a line for each letter of a long name."""
    facts = _calibration(seeds)
    facts["looks_at"] = ["x"] * 60_000
    facts["looks"] = {"yard": [[]] * 60_000}
    return json.dumps(facts, separators=(",", ":")).encode()


def deep_json(seeds: Path) -> bytes:
    """Lists in lists."""
    return b"[" * 100_000 + b"]" * 100_000


def zeros(member: str) -> Callable[[Path], bytes]:
    """An archive of one array of zeros, a thousandth of its size."""

    def make(seeds: Path) -> bytes:
        whole = seeds / HOLDERS.get(member, "extracted parts")
        out = io.BytesIO()
        with (
            zipfile.ZipFile(next(whole.iterdir())) as source,
            zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        ):
            for name in source.namelist():
                if name != f"{member}.npy":
                    archive.writestr(name, source.read(name))
            with archive.open(f"{member}.npy", "w", force_zip64=True) as file:
                file.write(_npy("|u1", 1_200_000_000)[:128])
                for _ in range(1200):
                    file.write(b"\0" * 1_000_000)
        return out.getvalue()

    return make


def large_array(seeds: Path) -> bytes:
    """A header that says 3 GB."""
    return _npy("|u1", 3_000_000_000)


def far_interval(seeds: Path) -> bytes:
    """A label that ends in a billion frames."""
    return b"1,0,3000000000\n"


def _npy(kind: str, n: int) -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({n},), }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + b"\0" * 40


def _calibration(seeds: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((seeds / "calibration" / "a.json").read_bytes())
    return facts


def _told(seeds: Path, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A track file with other metadata."""
    whole = io.BytesIO()
    path = seeds / "pose Parquet" / "one.parquet"
    facts = json.loads(pq.read_metadata(path).metadata[b"stepvad"])
    change(facts)
    table = pq.read_table(path).replace_schema_metadata({b"stepvad": json.dumps(facts).encode()})
    pq.write_table(table, whole, compression="zstd")
    return whole.getvalue()


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
