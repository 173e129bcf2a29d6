"""Small files that claim to hold much: what each costs a reader that believes them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


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


def many_statistics(seeds: Path) -> bytes:
    """A calibration whose drift values are a line for each letter of a long name."""
    facts: dict[str, Any] = json.loads((seeds / "calibration" / "a.json").read_bytes())
    facts["statistics"] = ["x"] * 60_000
    facts["block_stats"] = {"yard": [[]] * 60_000}
    return json.dumps(facts, separators=(",", ":")).encode()


def zeros(member: str) -> Callable[[Path], bytes]:
    """An archive of one array of zeros, a thousandth of its size."""

    def make(seeds: Path) -> bytes:
        whole = seeds / "extracted parts"
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


def _told(seeds: Path, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A track file with other metadata."""
    whole = io.BytesIO()
    path = seeds / "pose Parquet" / "one.parquet"
    facts = json.loads(pq.read_metadata(path).metadata[b"stepvad"])
    change(facts)
    table = pq.read_table(path).replace_schema_metadata({b"stepvad": json.dumps(facts).encode()})
    pq.write_table(table, whole, compression="zstd")
    return whole.getvalue()
