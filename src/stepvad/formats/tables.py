"""Clips and scores as Arrow tables, for pandas and other data frame libraries; scores as CSV.

A table of poses has the columns of a track file. Metadata under `stepvad` store what the rows
cannot express; pandas drops them, and tables without them are accepted.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepvad import codec
from stepvad.codec import Count
from stepvad.errors import DataError
from stepvad.files import replacing
from stepvad.formats import tracks
from stepvad.formats.reading import located
from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip, PoseRows
from stepvad.windows.body import Repairs

SCORE_COLUMNS = ("clip", "track", "frame", "confidence", "score")
SEEN = "seen"
"""The optional column of the share of poses that were seen; without it, all of them were."""
LACKING = "lacking"
"""The optional column of the frames that windows are short of T; without it, none is."""
ENERGIES = "energies"
"""The optional column of standardised energies, a list of L numbers in each row."""

FRAMES_AT_ONCE = 65_536


def clips_to_table(clips: Clip | Iterable[Clip]) -> Any:
    """Clips as a `pyarrow.Table`, one row per person and frame; call `.to_pandas()` for pandas.

    Columns are those of a track file: `clip`, `track`, `frame`, and `x`, `y` and `confidence` with
    a list of V numbers. Clips must share a skeleton and have distinct names. Needs the parquet
    extra.

    Examples:
        >>> clips_to_table(clip).column_names
        ['clip', 'track', 'frame', 'x', 'y', 'confidence']
    """
    pyarrow = tracks.import_pyarrow("a table")
    several = [clips] if isinstance(clips, Clip) else [*clips]
    if not several:
        raise DataError("expected at least one clip, got none", hint="check the input")
    header = tracks.Header(several[0].skeleton, {})
    schema = tracks.row_schema(header.skeleton.V, pyarrow)
    groups = [*tracks.row_groups(several, header, schema, pyarrow)]
    table = pyarrow.concat_tables(groups) if groups else schema.empty_table()
    return table.replace_schema_metadata({tracks.METADATA_KEY: codec.encode(header)})


def clips_from_table(table: Any, *, fps: float | None = None) -> list[Clip]:
    """The clips of a `pyarrow.Table`, a pandas frame or anything else Arrow can turn into a table.

    Rows may be in any order, and additional columns are ignored. Without stepvad metadata the
    frame rate is `fps`, a clip ends with its last pose, and joints have names if there are 17 or
    18.

    Raises:
        DataError: Names the column, or the clip, track and frame, and what was expected there.
        MissingExtraError: If pyarrow is not installed.

    Examples:
        >>> [one.name for one in clips_from_table(clips_to_table(clip))] == [clip.name]
        True
    """
    with _arrow(table, "poses") as (whole, pyarrow):
        tracks.check_columns(whole.schema, pyarrow.types)
        header = tracks.Header.from_metadata(whole.schema.metadata)
        # runs of rows by clip, those without rows too
        parts: dict[str, list[PoseRows]] = {name: [] for name in header.clips} if header else {}
        joints = header.skeleton.V if header else None
        for name, rows in tracks.decode_table(whole, joints, pyarrow):
            parts.setdefault(name, []).append(rows)
    clips = []
    for name, several in parts.items():
        with located(f"clip {name!r}"):
            own = PoseRows.joined(several).tracks() if several else ()
        clips.append(tracks.clip_of(name, own, header, fps))
    return clips


def scores_to_table(scores: Scores | Iterable[Scores]) -> Any:
    """Scores as a `pyarrow.Table`, one row per window: `clip`, `track`, `frame` and the score.

    `frame` is the last frame of the window, `confidence` is c(x), `score` is A(x), `seen` is the
    share of its poses that were not interpolated, `lacking` how many frames it is short of T if any
    window is, and `energies` holds the standardised energy of each noise scale. Clips must have
    distinct names, and all models the same number of noise scales. Needs the parquet extra.

    Examples:
        >>> scores_to_table(detector.score(clip)).column_names
        ['clip', 'track', 'frame', 'confidence', 'score', 'seen', 'energies']
    """
    pyarrow = tracks.import_pyarrow("a table")
    several = [scores] if isinstance(scores, Scores) else [*scores]
    widths = {one.windows.E.shape[1] for one in several}
    names = [one.clip for one in several]
    if len(widths) != 1 or len({*names}) != len(names):
        raise DataError(
            "expected scores of distinct clips by one model, got clips "
            f"{', '.join(names[:5]) or 'none'} and {len(widths)} different numbers of noise scales",
            hint="write one table per model, and rename clips that share a name",
        )
    (L,) = widths
    # windows of all clips, (N,), each with the name of its clip
    windows = WindowScores.join([one.windows for one in several], L)
    rows = np.repeat(np.arange(len(several)), [len(one.windows) for one in several])
    named = pyarrow.DictionaryArray.from_arrays(rows, pyarrow.array(names, pyarrow.string()))
    columns = [named.cast(pyarrow.string()), windows.track_id, windows.frame, windows.c, windows.A]
    table = dict(zip(SCORE_COLUMNS, columns, strict=True)) | {SEEN: windows.seen}
    if windows.lacking.any():
        table[LACKING] = windows.lacking
    if L:
        table[ENERGIES] = pyarrow.FixedSizeListArray.from_arrays(windows.E.ravel(), L)
    facts = {one.clip: _Facts(one.n_frames, one.T, one.flat_windows, one.counts) for one in several}
    return pyarrow.table(table).replace_schema_metadata(
        {tracks.METADATA_KEY: codec.encode(_ScoreHeader(1, facts))}
    )


def scores_from_table(table: Any, *, T: int | None = None) -> list[Scores]:
    """The scores in a table from `scores_to_table`, or in a pandas frame with the same columns.

    Without stepvad metadata a clip ends with its last window, and `T`, the number of frames in a
    window, is required.

    Examples:
        >>> (scores,) = scores_from_table(scores_to_table(detector.score(clip)))
        >>> np.array_equal(scores.A, detector.score(clip).A)
        True
    """
    with _arrow(table, "scores") as (whole, pyarrow):
        _check_columns(whole.schema, pyarrow.types)
        for name in ("clip", "track", "frame", LACKING):
            if name in whole.column_names:
                tracks.check_nulls(whole[name], name)
        metadata = (whole.schema.metadata or {}).get(tracks.METADATA_KEY)
        facts = None
        if metadata is not None:
            try:
                facts = codec.decode(_ScoreHeader, metadata, "metadata").scores
            except DataError as error:
                hint = "leave the metadata out, and give T"
                raise DataError(error.problem, hint=hint) from error
        # the number of each row's clip, (N,), by their names
        clips = whole["clip"].cast(pyarrow.string()).combine_chunks().dictionary_encode()
        names, number = clips.dictionary.to_pylist(), clips.indices.to_numpy()
        windows = _windows(whole, pyarrow)
    rows = {name: np.flatnonzero(number == at) for at, name in enumerate(names)}
    nowhere = np.empty(0, np.int64)
    listed = dict.fromkeys([*(facts or ()), *names])
    return [_scores(name, windows, rows.get(name, nowhere), facts, T) for name in listed]


@contextmanager
def score_csv(path: Path | None) -> Iterator[Callable[[Scores], None]]:
    """Open a table of frame scores and yield the function that appends a clip.

    A frame without a score has an empty cell. The file is written atomically; without a path,
    nothing is written.
    """
    if path is None:
        yield lambda scores: None
        return
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["clip", "frame", "score"])
        yield lambda scores: table.writerows(_rows(scores))


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts about a clip's scores that its rows cannot express."""

    n_frames: Count
    T: Count
    flat_windows: Count
    counts: Repairs


@dataclass(frozen=True, slots=True)
class _ScoreHeader:
    """The metadata of a table of scores."""

    format: Literal[1]
    scores: dict[str, _Facts]


def _scores(
    name: str,
    windows: WindowScores,
    rows: NDArray[np.int64],
    facts: dict[str, _Facts] | None,
    T: int | None,
) -> Scores:
    """The scores of one clip, from its rows."""
    part = windows.part(rows)
    # the clip's length and T: from the metadata, or from its last window
    if facts is not None:
        stated = facts.get(name)
    elif T is None:
        raise DataError(
            "expected a table with stepvad metadata, or T, got neither",
            hint="give T, the frames of a window: the model's config.T",
        )
    else:
        stated = _Facts(int(part.frame.max()) + 1, T, 0, Repairs())
    if stated is None or (
        len(part) and not 0 <= part.frame.min() <= part.frame.max() < stated.n_frames
    ):
        raise DataError(
            f"clip {name!r}: expected a clip and frames listed in the table's metadata, got others",
            hint="leave the metadata out, and give T",
        )
    wrong = part.lacking[(part.lacking < 0) | (part.lacking >= stated.T)]
    if len(wrong):
        raise DataError(
            f"clip {name!r}: expected windows that lack 0 to {stated.T - 1} frames, got {wrong[0]}",
            hint=f"leave the column {LACKING} out",
        )
    return Scores(name, stated.n_frames, stated.T, part, stated.counts, stated.flat_windows)


def _windows(table: Any, pyarrow: Any) -> WindowScores:
    """The window scores in the columns of a table, one row per window."""
    # ids and last frames, (N,), then the numbers, of which every row needs a finite one
    track, frame = (table[name].cast(pyarrow.int64()).to_numpy() for name in ("track", "frame"))
    names = ("confidence", "score", *([SEEN] if SEEN in table.column_names else []))
    numbers = {name: table[name].cast(pyarrow.float32(), safe=False).to_numpy() for name in names}
    for name, values in numbers.items():
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise DataError(
                f"column {name}, row {wrong[0]}: expected a finite number, got {values[wrong[0]]}",
                hint="leave out rows without a score",
            )
    c, A = numbers["confidence"], numbers["score"]
    found = WindowScores(track, frame, c, _energies(table, pyarrow), A)
    if SEEN in numbers:
        found = replace(found, seen=numbers[SEEN])
    if LACKING in table.column_names:
        found = replace(found, lacking=table[LACKING].cast(pyarrow.int64()).to_numpy())
    return found


def _energies(table: Any, pyarrow: Any) -> NDArray[np.float32]:
    """The column of energies, `(N, L)`; L = 0 if it is missing."""
    if ENERGIES not in table.column_names:
        return np.empty((len(table), 0), np.float32)
    # every row must have the same number L of energies, as a list or a block
    lists = table[ENERGIES].combine_chunks()
    lengths = {*pyarrow.compute.list_value_length(lists).to_pylist()}
    if pyarrow.types.is_fixed_size_list(lists.type):
        lengths.add(lists.type.list_size)
    if len(lengths) > 1 or None in lengths:
        raise DataError(
            f"column {ENERGIES}: expected the same number of values in every row, "
            "got different numbers",
            hint="leave the column out",
        )
    values = pyarrow.compute.list_flatten(lists).cast(pyarrow.float32(), safe=False)
    return np.asarray(values).reshape(len(table), *(lengths or {0}))


def _check_columns(schema: Any, types: Any) -> None:
    """Reject a table unless it has each score column exactly once, with a suitable type."""
    kinds: dict[str, tracks.ColumnType] = {"clip": ("text", tracks.is_text)}
    kinds |= dict.fromkeys(("track", "frame"), ("whole numbers", tracks.is_whole))
    optional = [SEEN] if SEEN in schema.names else []
    kinds |= dict.fromkeys(("confidence", "score", *optional), ("numbers", _is_number))
    if LACKING in schema.names:
        kinds[LACKING] = ("whole numbers", tracks.is_whole)
    tracks.check_kinds(schema, types, kinds)


def _is_number(kind: Any, types: Any) -> bool:
    return types.is_floating(kind) or types.is_integer(kind)


@contextmanager
def _arrow(table: Any, what: str) -> Iterator[tuple[Any, Any]]:
    """Yield the input as a `pyarrow.Table`, and pyarrow; errors become `DataError`."""
    pyarrow = tracks.import_pyarrow("a table")
    try:
        yield table if isinstance(table, pyarrow.Table) else pyarrow.table(table), pyarrow
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"expected a table of {what}, got {type(table).__name__}: "
            f"{str(error).partition(chr(10))[0]}",
            hint="give a pyarrow.Table, a pandas frame, or a mapping of columns",
        ) from error


def _rows(scores: Scores) -> Iterator[tuple[str, int, str]]:
    """Yield one row per frame, converting only `ROWS_AT_ONCE` frames at a time."""
    frames = scores.frames
    for first in range(0, len(frames), FRAMES_AT_ONCE):
        for frame, value in enumerate(frames[first : first + FRAMES_AT_ONCE].tolist(), start=first):
            yield scores.clip, frame, "" if value != value else f"{value:.6g}"
