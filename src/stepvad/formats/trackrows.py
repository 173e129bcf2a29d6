"""Convert the rows of a track file between Arrow columns and arrays.

One row is one person in one frame. `clip` is text, `track` and `frame` are integers, and `x`, `y`
and `confidence` are lists with one number per joint. Callers pass pyarrow in, so this module
imports without it.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.formats import limits
from stepvad.formats.parquetfile import Checked
from stepvad.poses import PoseRows, Track

ColumnType = tuple[str, Callable[[Any, Any], bool]]
"""Description of a column's type, and the test for it."""
JOINT_COLUMNS = ("x", "y", "confidence")
COLUMNS = ("clip", "track", "frame", *JOINT_COLUMNS)
ROWS_AT_ONCE = 65_536
"""Rows of a row group, and rows held in memory besides the current clip."""


def schema(n_joints: int, pyarrow: Any) -> Any:
    """The Arrow schema of poses with `n_joints` joints.

    Lists have a fixed size: Parquet stores them like any list, and Arrow reads them back as blocks.
    """
    whole, joints = pyarrow.int64(), pyarrow.list_(pyarrow.float32(), n_joints)
    types = dict.fromkeys(JOINT_COLUMNS, joints) | {"track": whole, "frame": whole}
    types["clip"] = pyarrow.string()
    return pyarrow.schema([pyarrow.field(name, types[name], nullable=False) for name in COLUMNS])


def encode(clip_name: str, track: Track, schema: Any, pyarrow: Any) -> Any:
    """The rows of a track as an Arrow table."""
    n_joints = track.keypoints.shape[1]
    joints = (track.keypoints[..., 0], track.keypoints[..., 1], track.confidence)
    columns = [
        pyarrow.repeat(clip_name, len(track)),
        np.full(len(track), track.id, dtype=np.int64),
        track.frames,
        *(pyarrow.FixedSizeListArray.from_arrays(part.ravel(), n_joints) for part in joints),
    ]
    return pyarrow.table(columns, schema=schema)


def check_columns(schema: Any, types: Any) -> None:
    """Reject a file unless it has each required column exactly once, with a suitable type.

    Other widths are accepted: any integer, any float or integer in lists, text stored as
    categories. Additional columns are ignored.
    """
    kinds: dict[str, ColumnType] = {"clip": ("text", is_text)}
    kinds |= dict.fromkeys(("track", "frame"), ("whole numbers", is_whole))
    kinds |= dict.fromkeys(JOINT_COLUMNS, ("a list of V numbers in each row", is_joints))
    check_kinds(schema, types, kinds)


def check_kinds(schema: Any, types: Any, kinds: Mapping[str, ColumnType]) -> None:
    """Reject columns that are missing, duplicated or of the wrong type."""
    for name, (expected, fits) in kinds.items():
        found = [schema.field(at).type for at in schema.get_all_field_indices(name)]
        if len(found) != 1 or not fits(found[0], types):
            raise DataError(
                f"column {name}: expected {expected}, got {', '.join(map(str, found)) or 'none'}",
                hint=f"give the columns {', '.join(kinds)}, each once",
            )


def decode(
    checked: Checked, n_joints: int | None, pyarrow: Any, *, threads: bool = True
) -> Iterator[tuple[str, PoseRows]]:
    """Yield runs of rows with the name of their clip, which may continue in the next run.

    `n_joints` defaults to that of the first row. Memory is bounded by the batch, not by the file.
    """
    n_rows, file = 0, checked.file
    for batch in checked.batches(ROWS_AT_ONCE, threads=threads):
        batch.validate(full=True)
        if n_joints is None and len(batch):
            n_joints = len(batch.column("x")[0].as_py() or ())
        yield from _decode_batch(batch, n_joints or 0, pyarrow)
        n_rows += len(batch)
    if n_rows != file.metadata.num_rows:
        raise DataError(
            f"expected {file.metadata.num_rows} rows, as the file says, got {n_rows}",
            hint="the file is damaged; write or copy it again",
        )


def decode_table(table: Any, n_joints: int | None, pyarrow: Any) -> Iterator[tuple[str, PoseRows]]:
    """Like `decode`, for a table in memory."""
    table = table.select(COLUMNS)
    names = table["clip"].cast(pyarrow.string()).dictionary_encode()
    for batch in table.set_column(0, "clip", names).to_batches(max_chunksize=ROWS_AT_ONCE):
        batch.validate(full=True)
        if n_joints is None and len(batch):
            n_joints = len(batch.column("x")[0].as_py() or ())
        yield from _decode_batch(batch, n_joints or 0, pyarrow)


def _decode_batch(batch: Any, n_joints: int, pyarrow: Any) -> Iterator[tuple[str, PoseRows]]:
    """Yield the runs of rows within one batch."""
    for name in ("clip", "track", "frame"):
        check_nulls(batch.column(name), name)
    names, codes = named(batch.column("clip"))
    track = batch.column("track").cast(pyarrow.int64()).to_numpy()
    frame = batch.column("frame").cast(pyarrow.int64()).to_numpy()

    def where(row: int) -> str:
        return f"clip {names[codes[row]]!r}, track {track[row]}, frame {frame[row]}"

    x, y, confidence = (
        _joints(batch.column(name), name, n_joints, where, pyarrow) for name in JOINT_COLUMNS
    )
    rows = PoseRows(track, frame, np.stack([x, y], axis=-1), confidence)
    for run in _runs(codes):
        yield names[codes[run.start]], rows[run]


def named(column: Any) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct names in a dictionary-encoded text column, and the index of each row's name."""
    names = column.dictionary.to_pylist()
    for name in names:
        limits.check_name(name)
    return names, column.indices.to_numpy()


def _joints(
    column: Any, name: str, n_joints: int, where: Callable[[int], str], pyarrow: Any
) -> NDArray[np.float32]:
    """A column of lists as an array, `(n, V)`; `where` names a row for the error."""
    values = column.flatten().cast(pyarrow.float32(), safe=False)
    if name == "confidence":
        values = values.fill_null(math.nan)  # pandas writes a NaN inside a list as null
    lengths = pyarrow.compute.list_value_length(column).fill_null(0).to_numpy()
    wrong = np.flatnonzero((lengths != n_joints) | (lengths == 0))
    if values.null_count and not len(wrong):
        wrong = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)) // n_joints
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{where(row)}: expected {n_joints or 'some'} numbers in {name}, "
            f"got {reprlib.repr(column[row].as_py())}",
            hint="give one number per joint",
        )
    return values.to_numpy().reshape(len(column), n_joints)


def _runs(keys: NDArray[np.int64]) -> Iterator[slice]:
    """Slices of consecutive rows with the same key."""
    changes = np.flatnonzero(np.diff(keys)) + 1
    bounds = [0, *changes.tolist(), len(keys)] if len(keys) else []
    return (slice(first, end) for first, end in pairwise(bounds))


def check_nulls(column: Any, name: str) -> None:
    """Reject nulls in a column that needs a value in every row."""
    if column.null_count:
        raise DataError(
            f"column {name}: expected a value in every row, got {column.null_count} empty ones",
            hint="leave out rows without one",
        )


def is_text(kind: Any, types: Any) -> bool:
    """Whether a type is text, or categories of text."""
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_whole(kind: Any, types: Any) -> bool:
    """Whether a type is an integer."""
    return types.is_integer(kind)


def is_joints(kind: Any, types: Any) -> bool:
    """Whether a type is a list of numbers."""
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return is_list and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type))
