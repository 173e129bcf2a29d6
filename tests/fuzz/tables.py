"""Parquet files whose rows, pages and metadata say something else than they should."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.mutation import ODD, TEXTS, Random, by_bytes, changed

ENCODINGS: dict[str, tuple[str, ...]] = {
    "clip": ("PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"),
    "track": ("PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"),
}


def by_parquet(data: bytes, rng: Random) -> bytes:
    """A Parquet file damaged by bytes, or written with rows and metadata that do not belong."""
    if rng.random() < 0.5:
        return by_bytes(data, rng)
    table = pq.read_table(io.BytesIO(data))
    entries = dict(pq.read_metadata(io.BytesIO(data)).metadata or {})
    entries.pop(b"ARROW:schema", None)
    for key in entries:
        if rng.random() < 0.6:
            entries[key] = json.dumps(changed(json.loads(entries[key]), rng)).encode()
    if rng.random() < 0.2:
        entries = {}
    for _ in range(rng.randrange(3)):
        table = _spoilt(table, rng)
    out = io.BytesIO()
    options: dict[str, Any] = {
        "compression": rng.choice(("none", "zstd", "snappy", "gzip")),
        "use_dictionary": rng.random() < 0.6,
        "data_page_version": rng.choice(("1.0", "2.0")),
        "write_page_checksum": rng.random() < 0.3,
        "row_group_size": rng.choice((1, 7, 1000, 1 << 20)),
        "store_schema": rng.random() < 0.7,
    }
    if len(table) > 1000:
        options["row_group_size"] = 1 << 20
    if not options["use_dictionary"] and rng.random() < 0.7:
        names = [name for name in ENCODINGS if name in table.column_names]
        options["column_encoding"] = {
            name: rng.choice(ENCODINGS[name])
            for name in names
            if pa.types.is_string(table.schema.field(name).type) == (name == "clip")
            and (name == "clip" or pa.types.is_int64(table.schema.field(name).type))
        }
    pq.write_table(table.replace_schema_metadata(entries), out, **options)
    made = out.getvalue()
    return by_bytes(made, rng) if rng.random() < 0.4 else made


def _spoilt(table: Any, rng: Random) -> Any:
    """A table with one column that is another, or with rows again and again."""
    name = rng.choice(table.column_names)
    at, n = table.column_names.index(name), len(table)
    match rng.randrange(6):
        case 0 if n and table.nbytes < 100_000:
            rows = np.zeros(rng.choice((100, 20_000, 300_000)), np.int64)
            return table.take(pa.array(rows))
        case 1 if name == "clip":
            return table.set_column(at, name, pa.array([rng.choice(TEXTS)] * n, pa.string()))
        case 2 if pa.types.is_integer(table.schema.field(name).type):
            number = rng.choice((-1, 99_999_999, 100_000_001, 2**31, 2**63 - 1))
            return table.set_column(at, name, pa.array([number] * n, pa.int64()))
        case 3 if n < 30_000 and not pa.types.is_integer(table.schema.field(name).type):
            many = rng.choice((0, 1, 100, 2000))
            row = pa.array(np.zeros(n * many, np.float32))
            ends = pa.array(np.arange(n + 1, dtype=np.int32) * many)
            return table.set_column(at, name, pa.ListArray.from_arrays(ends, row))
        case 4:
            return table.drop_columns([name])
        case _:
            odd = rng.choice([value for value in ODD if not isinstance(value, dict | list)] + [1.5])
            try:
                return table.set_column(at, name, pa.array([odd] * n))
            except (pa.ArrowException, ValueError, UnicodeEncodeError):
                return table
