"""Stepvad's own track files: Parquet, one row per person and frame, any number of clips per file.

The rows of a clip are contiguous, sorted by track and frame. Metadata under `stepvad` store what
the rows cannot express; files without them are accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from io import BytesIO
from itertools import chain, groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from stepvad import skeletons
from stepvad.codec import encode
from stepvad.errors import DataError
from stepvad.files.atomic import replacing
from stepvad.formats import limits, parquetfile, trackrows
from stepvad.formats.trackheader import ClipFacts, Header
from stepvad.poses import Clip, PoseRows, Track, n_frames_of
from stepvad.skeletons import COCO17

METADATA_KEY = b"stepvad"
EXTRA: Mapping[str, str] = {"feature": "reading Parquet tracks", "extra": "parquet"}
WRITING = ("writing Parquet tracks", "parquet")


def read(path: Path, *, fps: float | None = None) -> Iterator[Clip]:
    """Yield the clips of a file in the file's order; clips without poses come last.

    Without stepvad metadata the rate is unknown, a clip ends with its last pose, and joints have
    names if there are 17 or 18. Page checksums are verified, so corrupt numbers are not read as
    poses.

    Args:
        fps: Frame rate; overrides the rate stored in the file, if any.
    """
    with located(str(path)):
        yield from _clips(path, fps)


def from_bytes(body: bytes) -> Clip:
    """The only clip of the contents of a file."""
    with located("poses"):
        clips = [*_clips(BytesIO(body), None)]
        if len(clips) != 1:
            raise DataError(f"expected one clip, got {len(clips)}", hint="check the input")
    return clips[0]


def _clips(source: Path | BinaryIO, fps: float | None) -> Iterator[Clip]:
    with opened(source) as (header, parts):
        seen: set[str] = set()
        n_frames = n_poses = 0
        for name, tracks in _grouped(parts):
            check_new(name, seen)
            clip = clip_of(name, tracks, header, fps)
            n_frames, n_poses = n_frames + clip.n_frames, n_poses + clip.n_poses
            if header is None:  # otherwise `opened` checked the declared total
                limits.check_frames(n_frames, n_poses)
            yield clip
        for name in header.clips if header else ():
            if name not in seen:
                yield clip_of(name, (), header, fps)


@contextmanager
def opened(
    source: Path | BinaryIO, *, threads: bool = True
) -> Iterator[tuple[Header | None, Iterator[tuple[str, PoseRows]]]]:
    """Open a file and yield its header, and its rows in batches with the name of their clip.

    At most `trackrows.ROWS_AT_ONCE` rows are in memory, whatever the size of the file. Without
    `threads` the columns are decoded sequentially in the calling thread. Exceptions of the consumer
    propagate unchanged; errors of the file do not name it.
    """
    pyarrow, _ = parquetfile.pyarrow_of(**EXTRA)
    with ExitStack() as stack:
        with _readable():
            columns = trackrows.COLUMNS
            file = parquetfile.opened(source, columns, texts=["clip"], **EXTRA)
            checked = stack.enter_context(file)
            trackrows.check_columns(checked.file.schema_arrow, pyarrow.types)
            about = checked.file.metadata
            metadata = (about.metadata or {}).get(METADATA_KEY)
            header = None if metadata is None else Header.decode(metadata)
            if header is not None:
                total = sum(facts.n_frames for facts in header.clips.values())
                limits.check_frames(total, about.num_rows)
        n_joints = header.skeleton.V if header else None
        yield header, _read(trackrows.decode(checked, n_joints, pyarrow, threads=threads))


@contextmanager
def located(name: str) -> Iterator[None]:
    """Prefix a `DataError` with `name`."""
    try:
        yield
    except DataError as error:
        raise error.located(name) from error


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


def read_origin(path: Path) -> Mapping[str, object]:
    """How the poses of a file were produced; empty if not recorded."""
    with located(str(path)), _readable():
        metadata = parquetfile.read_metadata(path, **EXTRA).get(METADATA_KEY)
        return {} if metadata is None else Header.decode(metadata).origin


def write(
    clips: Iterable[Clip], path: Path, *, origin: Mapping[str, object] = MappingProxyType({})
) -> None:
    """Write clips one at a time; they must share a skeleton and have distinct names.

    Small clips share a row group, large ones span several. A track without poses has no rows, so
    it is not stored. `origin` records how the poses were produced, as JSON values.
    """
    parquetfile.pyarrow_of(*WRITING)  # fails before clips are made, which may take hours
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


def _write(
    first: Clip, others: Iterable[Clip], file: Path | BinaryIO, origin: Mapping[str, object]
) -> None:
    pyarrow, parquet = parquetfile.pyarrow_of(*WRITING)
    header = Header(first.skeleton, {}, {**origin})
    schema = trackrows.schema(first.skeleton.V, pyarrow)
    with parquet.ParquetWriter(
        file,
        schema,
        compression="zstd",
        use_dictionary=["clip", "track"],
        write_page_checksum=True,
    ) as writer:
        for group in row_groups(chain([first], others), header, schema, pyarrow):
            writer.write_table(group, row_group_size=trackrows.ROWS_AT_ONCE)
        writer.add_key_value_metadata({METADATA_KEY: encode(header)})


def _read(parts: Iterator[tuple[str, PoseRows]]) -> Iterator[tuple[str, PoseRows]]:
    """Pass rows through; errors while reading become `DataError`."""
    with _readable():
        yield from parts


def _readable() -> AbstractContextManager[None]:
    return parquetfile.as_data_errors("a Parquet file of tracks", **EXTRA)


def _grouped(parts: Iterator[tuple[str, PoseRows]]) -> Iterator[tuple[str, tuple[Track, ...]]]:
    """Yield the tracks of each clip, which may span many row groups."""
    for name, group in groupby(parts, key=lambda part: part[0]):
        try:
            yield name, PoseRows.joined([rows for _, rows in group]).tracks()
        except DataError as error:
            raise error.located(f"clip {name!r}") from error


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
    waiting: list[Any] = []
    for clip in clips:
        _enter(clip, header)
        tracks = sorted(clip.tracks, key=lambda track: track.id)
        waiting += (trackrows.encode(clip.name, track, schema, pyarrow) for track in tracks)
        if sum(len(table) for table in waiting) >= trackrows.ROWS_AT_ONCE:
            yield pyarrow.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pyarrow.concat_tables(waiting)


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
