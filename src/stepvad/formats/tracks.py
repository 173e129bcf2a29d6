"""Stepvad's own track files: Parquet, one row per person and frame, any number of clips per file.

`clip` is text, `track` and `frame` are integers, and `x`, `y` and `confidence` are lists with one
number per joint. The rows of a clip are contiguous, sorted by track and frame. What rows cannot
express is in the metadata of the file, as JSON under the key `stepvad`:
`{"format": 1, "skeleton": {"name", "joints", "bones"}, "clips": {name: {"fps", "n_frames"}}}`,
with `"origin"`, how the poses were produced, if known; files without it are accepted.

Files are not trusted: the footer's claims are checked, and rows are read in batches. A page that
claims more than the footer is Arrow's to refuse; the workers of an archive have a limit of memory
besides. Functions take pyarrow as an argument, so this module imports without it.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import SEEK_END, BytesIO
from itertools import chain, groupby, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from stepvad import codec, skeletons
from stepvad.codec import Count, NewerVersionError, Positive
from stepvad.errors import DataError, MissingExtraError
from stepvad.files import most_unpacked, replacing
from stepvad.formats import reading
from stepvad.formats.reading import FileFormat, PoseFile, located
from stepvad.poses import Clip, PoseRows, Track, n_frames_of
from stepvad.skeletons import COCO17, Skeleton

METADATA_KEY = b"stepvad"
READING, WRITING = "reading Parquet tracks", "writing Parquet tracks"

ColumnType = tuple[str, Callable[[Any, Any], bool]]
"""Description of a column's type, and the test for it."""
JOINT_COLUMNS = ("x", "y", "confidence")
COLUMNS = ("clip", "track", "frame", *JOINT_COLUMNS)
TRACK_FILE = "a Parquet file of tracks"
ROWS_AT_ONCE = 65_536
"""Rows of a row group, and rows held in memory besides the current clip."""

BUFFER = 1 << 18
"""Bytes of a column read at once, whatever the size of its row group."""
MAX_LISTED = 100_000
"""Most row groups or columns of a file."""
BATCH_VALUES = 1 << 22
"""Values of a column decompressed at once."""
VALUE_BYTES = 8
"""Memory of one value, including its offset in a list."""


def read(file: PoseFile, fps: float | None) -> Iterator[Clip]:
    """Yield the clips of a file in the file's order; clips without poses come last.

    Without stepvad metadata the rate is unknown, a clip ends with its last pose, and joints have
    names if there are 17 or 18. Page checksums are verified, so corrupt numbers are not read as
    poses.

    Args:
        fps: Frame rate; overrides the rate stored in the file, if any.
    """
    with located(str(file.path)):
        yield from clips_in(file.path, fps)


TRACKS = FileFormat((".parquet",), lambda file: True, read)


def from_bytes(body: bytes) -> Clip:
    """The only clip of the contents of a file."""
    with located("poses"):
        clips = [*clips_in(BytesIO(body))]
        if len(clips) != 1:
            raise DataError(f"expected one clip, got {len(clips)}", hint="check the input")
    return clips[0]


def clips_in(source: Path | BinaryIO, fps: float | None = None) -> Iterator[Clip]:
    """Like `read`, of a file that may be open; errors do not name it."""
    with opened(source) as (header, parts):
        # clips with rows, then those of the header that have none
        seen: set[str] = set()
        n_frames = n_poses = 0
        for name, several in groupby(parts, key=lambda part: part[0]):
            check_new(name, seen)
            with located(f"clip {name!r}"):
                tracks = PoseRows.joined([rows for _, rows in several]).tracks()
            clip = clip_of(name, tracks, header, fps)
            n_frames, n_poses = n_frames + clip.n_frames, n_poses + clip.n_poses
            if header is None:  # otherwise `opened` checked the declared total
                reading.check_frames(n_frames, n_poses)
            yield clip
        for name in header.clips if header else ():
            if name not in seen:
                yield clip_of(name, (), header, fps)


@contextmanager
def opened(
    source: Path | BinaryIO, *, threads: bool = True
) -> Iterator[tuple[Header | None, Iterator[tuple[str, PoseRows]]]]:
    """Open a file and yield its header, and its rows in batches with the name of their clip.

    At most `ROWS_AT_ONCE` rows are in memory, whatever the size of the file. Without
    `threads` the columns are decoded sequentially in the calling thread. Exceptions of the consumer
    propagate unchanged; errors of the file do not name it.
    """
    pyarrow = import_pyarrow(READING)
    with ExitStack() as stack:
        with as_data_errors(TRACK_FILE):
            # the footer's claims, before any row
            file = stack.enter_context(open_parquet(source, texts=["clip"]))
            size = source.stat().st_size if isinstance(source, Path) else source.seek(0, SEEK_END)
            checked = CheckedFile(file, size)
            check_columns(file.schema_arrow, pyarrow.types)
            header = Header.from_metadata(file.metadata.metadata)
            if header is not None:
                total = sum(facts.n_frames for facts in header.clips.values())
                reading.check_frames(total, file.metadata.num_rows)
        n_joints = header.skeleton.V if header else None
        yield header, decode_rows(checked, n_joints, pyarrow, threads=threads)


def read_origin(path: Path) -> Mapping[str, object]:
    """Facts on how the poses of a file were produced; empty if not recorded."""
    import_pyarrow(READING)
    with located(str(path)), as_data_errors(TRACK_FILE), open_parquet(path) as file:
        header = Header.from_metadata(file.metadata.metadata)
        return {} if header is None else header.origin


def write(
    clips: Iterable[Clip], path: Path, *, origin: Mapping[str, object] = MappingProxyType({})
) -> None:
    """Write clips one at a time; they must share a skeleton and have distinct names.

    Small clips share a row group, large ones span several. A track without poses has no rows, so
    it is not stored. `origin` records how the poses were produced, as JSON values.
    """
    import_pyarrow(WRITING)  # fails before clips are made, which may take hours
    clips = iter(clips)
    first = next(clips, None)
    if first is None:
        raise DataError(f"{path}: expected at least one clip, got none", hint="check the input")
    with replacing(path, DataError) as temporary:
        _write(first, clips, temporary, origin)


def to_bytes(clip: Clip) -> bytes:
    """The contents of a file of one clip, made in memory: no temporary file holds the poses."""
    file = BytesIO()
    _write(clip, (), file, {})
    return file.getvalue()


@dataclass(frozen=True, slots=True)
class Header:
    """The metadata of a track file; clips are in the order in which they were written."""

    skeleton: Skeleton
    clips: dict[Annotated[str, Meta(max_length=reading.MAX_NAME)], ClipFacts]
    origin: dict[str, Any] = field(default_factory=dict)
    format: Literal[1] = 1

    def __post_init__(self) -> None:
        """Check the number of joints and the lengths of names."""
        reading.check_joints(self.skeleton.V)
        for name in (self.skeleton.name, *self.skeleton.joints):
            reading.check_name(name)

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes] | None) -> Header | None:
        """The header in the metadata of a file or a table; None if it has none."""
        data = (metadata or {}).get(METADATA_KEY)
        if data is None:
            return None
        try:
            return codec.decode(cls, data, "metadata")
        except NewerVersionError:
            raise
        except DataError as error:
            hint = error.hint or "write the file again, or without its stepvad metadata"
            raise DataError(error.problem, hint=hint) from error


@dataclass(frozen=True, slots=True)
class ClipFacts:
    """Facts about a clip that its rows cannot express: its rate, if known, and its length."""

    fps: Positive | None
    n_frames: Count


def check_new(name: str, seen: set[str]) -> None:
    """Record a clip whose rows start; raise if it was seen before."""
    if name in seen:
        raise DataError(
            f"clip {name!r}: expected its rows to be contiguous, got other clips in between",
            hint="sort the rows by clip, track and frame",
        )
    seen.add(name)


def facts_of(name: str, header: Header) -> ClipFacts:
    """The metadata of a clip."""
    if name not in header.clips:
        raise DataError(
            f"clip {name!r}: expected only clips that the file's metadata lists, got one more",
            hint="write the file with stepvad, or without its stepvad metadata",
        )
    return header.clips[name]


def clip_of(name: str, tracks: tuple[Track, ...], header: Header | None, fps: float | None) -> Clip:
    """Build a clip from its tracks and its metadata, if any."""
    if header is None:
        skeleton = skeletons.of_size(tracks[0].keypoints.shape[1]) if tracks else COCO17
        return Clip(name, fps, n_frames_of(tracks), tracks, skeleton)
    facts = facts_of(name, header)
    rate = facts.fps if fps is None else fps
    return Clip(name, rate, facts.n_frames, tracks, header.skeleton)


def row_groups(clips: Iterable[Clip], header: Header, schema: Any, pyarrow: Any) -> Iterator[Any]:
    """Yield the rows of the clips in tables of row-group size, and add each clip to the header."""
    # tables of the tracks since the last row group
    waiting: list[Any] = []
    for clip in clips:
        _enter(clip, header)
        tracks = sorted(clip.tracks, key=lambda track: track.id)
        waiting += (encode_rows(clip.name, track, schema, pyarrow) for track in tracks)
        if sum(len(table) for table in waiting) >= ROWS_AT_ONCE:
            yield pyarrow.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pyarrow.concat_tables(waiting)


def row_schema(n_joints: int, pyarrow: Any) -> Any:
    """The Arrow schema of poses with `n_joints` joints.

    Lists have a fixed size: Parquet stores them like any list, and Arrow reads them back as blocks.
    """
    whole, joints = pyarrow.int64(), pyarrow.list_(pyarrow.float32(), n_joints)
    types = dict.fromkeys(JOINT_COLUMNS, joints) | {"track": whole, "frame": whole}
    types["clip"] = pyarrow.string()
    return pyarrow.schema([pyarrow.field(name, types[name], nullable=False) for name in COLUMNS])


def encode_rows(clip_name: str, track: Track, schema: Any, pyarrow: Any) -> Any:
    """The rows of a track as an Arrow table."""
    # x, y and confidence, (n, V) each, become columns of lists
    n_joints = track.keypoints.shape[1]
    joints = (track.keypoints[..., 0], track.keypoints[..., 1], track.confidence)
    columns = [
        pyarrow.repeat(clip_name, len(track)),
        np.full(len(track), track.id, dtype=np.int64),
        track.frames,
        *(pyarrow.FixedSizeListArray.from_arrays(part.ravel(), n_joints) for part in joints),
    ]
    return pyarrow.table(columns, schema=schema)


def decode_rows(
    checked: CheckedFile, n_joints: int | None, pyarrow: Any, *, threads: bool = True
) -> Iterator[tuple[str, PoseRows]]:
    """Yield runs of rows with the name of their clip, which may continue in the next run.

    `n_joints` defaults to that of the first row. Memory is bounded by the batch, not by the file.
    """
    n_rows, expected = 0, checked.file.metadata.num_rows
    batches = checked.batches(ROWS_AT_ONCE, threads=threads)
    with as_data_errors(TRACK_FILE):
        for name, rows in _decode(batches, n_joints, pyarrow):
            n_rows += len(rows.frame)
            yield name, rows
        if n_rows != expected:
            raise DataError(
                f"expected {expected} rows, as the file says, got {n_rows}",
                hint="the file is damaged; write or copy it again",
            )


def decode_table(table: Any, n_joints: int | None, pyarrow: Any) -> Iterator[tuple[str, PoseRows]]:
    """Like `decode_rows`, for a table in memory."""
    table = table.select(COLUMNS)
    # names as categories, as they are read from a file
    names = table["clip"].cast(pyarrow.string()).dictionary_encode()
    batches = table.set_column(0, "clip", names).to_batches(max_chunksize=ROWS_AT_ONCE)
    return _decode(batches, n_joints, pyarrow)


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


def check_nulls(column: Any, name: str) -> None:
    """Reject nulls in a column that needs a value in every row."""
    if column.null_count:
        raise DataError(
            f"column {name}: expected a value in every row, got {column.null_count} empty ones",
            hint="leave out rows without one",
        )


def is_text(kind: Any, types: Any) -> bool:
    """Accept text, or categories of text."""
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_whole(kind: Any, types: Any) -> bool:
    """Accept integers."""
    return types.is_integer(kind)


def is_joints(kind: Any, types: Any) -> bool:
    """Accept lists of numbers."""
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return is_list and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type))


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A Parquet file whose footer is checked, read one row group at a time."""

    file: Any
    """A `pyarrow.parquet.ParquetFile`."""
    size: int
    """Size of the file in bytes."""

    def __post_init__(self) -> None:
        """Reject a footer that declares too much, before any page is read."""
        # the memory that all row groups claim for their values
        most, claimed = most_unpacked(self.size), 0
        for group in range(self.file.metadata.num_row_groups):
            n_rows = max(self.file.metadata.row_group(group).num_rows, 1)
            for chunk in self._chunks(group):
                name, _, inner = chunk.path_in_schema.partition(".")
                if chunk.num_values < 0 or (chunk.num_values > n_rows and not inner):
                    raise DataError(
                        f"expected a footer that fits the rows, got column {name}: "
                        f"{chunk.num_values:,} values in {n_rows:,} rows",
                        hint="the file is damaged; write or copy it again",
                    )
                reading.check_joints(-(-chunk.num_values // n_rows))
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
            # values of the longest list in a row bound how many rows are decompressed at once
            each = max(-(-longest // n_rows), 1)
            yield from self.file.iter_batches(
                batch_size=max(min(rows, BATCH_VALUES // each), 1),
                row_groups=[group],
                columns=list(COLUMNS),
                use_threads=threads,
            )

    def _chunks(self, group: int) -> Iterator[Any]:
        """The column chunks that hold poses."""
        about = self.file.metadata.row_group(group)
        for number in range(about.num_columns):
            chunk = about.column(number)
            if chunk.path_in_schema.partition(".")[0] in COLUMNS:
                yield chunk


@contextmanager
def as_data_errors(expected: str) -> Iterator[None]:
    """Convert errors of Arrow into a `DataError` that says what was expected."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"expected {expected}, got: {reason}",
            hint="check the path; if the file is truncated or damaged, write or copy it again",
        ) from error


def open_parquet(source: Path | BinaryIO, *, texts: Sequence[str] = ()) -> Any:
    """Open a Parquet file; the strings in `texts` columns are stored once each."""
    import pyarrow.parquet

    options: dict[str, Any] = {
        "pre_buffer": False,
        "page_checksum_verification": True,
        "buffer_size": BUFFER,
        "thrift_container_size_limit": MAX_LISTED,
    }
    # the footer alone, then the file: columns that are missing are reported elsewhere
    about = pyarrow.parquet.ParquetFile(source, **options).metadata
    paths = {about.schema.column(number).path for number in range(about.num_columns)}
    there = [name for name in texts if name in paths]
    return pyarrow.parquet.ParquetFile(source, metadata=about, read_dictionary=there, **options)


def import_pyarrow(feature: str, extra: str = "parquet") -> Any:
    """Import `pyarrow`, which only Parquet files and tables need; `feature` is for the error."""
    try:
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(feature, extra) from error
    return pyarrow


def _write(
    first: Clip, others: Iterable[Clip], file: Path | BinaryIO, origin: Mapping[str, object]
) -> None:
    pyarrow = import_pyarrow(WRITING)
    header = Header(first.skeleton, {}, {**origin})
    schema = row_schema(first.skeleton.V, pyarrow)
    with pyarrow.parquet.ParquetWriter(
        file,
        schema,
        compression="zstd",
        use_dictionary=["clip", "track"],
        write_page_checksum=True,
    ) as writer:
        for group in row_groups(chain([first], others), header, schema, pyarrow):
            writer.write_table(group, row_group_size=ROWS_AT_ONCE)
        writer.add_key_value_metadata({METADATA_KEY: codec.encode(header)})


def _enter(clip: Clip, header: Header) -> None:
    """Add a clip to the header; raise if its name or skeleton conflicts with earlier clips."""
    if clip.name in header.clips:
        raise DataError(
            f"clip {clip.name!r}: expected distinct clip names, got it twice",
            hint="rename one, or write the clips into different files",
        )
    if clip.skeleton != header.skeleton:
        raise DataError(
            f"clip {clip.name!r}: expected skeleton {header.skeleton.name}, as in the file's first "
            f"clip, got {clip.skeleton.name}",
            hint="write clips of different skeletons into different files",
        )
    header.clips[clip.name] = ClipFacts(clip.fps, clip.n_frames)


def _decode(
    batches: Iterable[Any], n_joints: int | None, pyarrow: Any
) -> Iterator[tuple[str, PoseRows]]:
    """Yield the runs of rows in batches."""
    for batch in batches:
        batch.validate(full=True)
        if n_joints is None and len(batch):
            n_joints = len(batch.column("x")[0].as_py() or ())
        yield from _decode_batch(batch, n_joints or 0, pyarrow)


def _decode_batch(batch: Any, n_joints: int, pyarrow: Any) -> Iterator[tuple[str, PoseRows]]:
    """Yield the runs of rows within one batch."""
    for name in ("clip", "track", "frame"):
        check_nulls(batch.column(name), name)
    # the number of each row's clip, its track and frame, (n,) each
    clips = batch.column("clip")
    names, codes = clips.dictionary.to_pylist(), clips.indices.to_numpy()
    for name in names:
        reading.check_name(name)
    track = batch.column("track").cast(pyarrow.int64()).to_numpy()
    frame = batch.column("frame").cast(pyarrow.int64()).to_numpy()

    def where(row: int) -> str:
        return f"clip {names[codes[row]]!r}, track {track[row]}, frame {frame[row]}"

    # (n, V) each
    x, y, confidence = (
        _joints(batch.column(name), name, n_joints, where, pyarrow) for name in JOINT_COLUMNS
    )
    rows = PoseRows(track, frame, np.stack([x, y], axis=-1), confidence)
    # consecutive rows of one clip
    bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)] if len(codes) else []
    for first, end in pairwise(bounds):
        yield names[codes[first]], rows[first:end]


def _joints(
    column: Any, name: str, n_joints: int, where: Callable[[int], str], pyarrow: Any
) -> NDArray[np.float32]:
    """A column of lists as an array, `(n, V)`; `where` names a row for the error."""
    # all numbers in a row, (n V,) if every list is of the right length
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
