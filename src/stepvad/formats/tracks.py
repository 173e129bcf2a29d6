"""Our own track files: Parquet, one row per person and frame, any number of clips in a file.

The rows of a clip stand together, sorted by track and frame. The file's metadata holds under
`stepvad` what rows cannot tell; a file without it is read all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain, groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from stepvad import skeletons
from stepvad.errors import DataError
from stepvad.files.atomic import replacing
from stepvad.formats import limits, parquetfile, trackrows
from stepvad.formats.trackheader import ClipFacts, Header
from stepvad.poses import Clip, PoseRows, Track, n_frames_of
from stepvad.skeletons import COCO17

METADATA_KEY = b"stepvad"
EXTRA: Mapping[str, str] = {"feature": "reading Parquet tracks", "extra": "parquet"}


def read(path: Path, *, fps: float | None = None) -> Iterator[Clip]:
    """The clips of a file, one at a time and in the file's order; clips without poses come last.

    Without our metadata the rate is unknown, a clip ends with its last pose, and joints have names
    if there are 17 or 18. Pages carry checksums, so damaged numbers do not pass for poses.

    Args:
        fps: The frame rate where the file does not tell it; wins where it does.
    """
    with located(str(path)), opened(path) as (header, parts):
        seen: set[str] = set()
        n_frames = n_poses = 0
        for name, tracks in _grouped(parts):
            check_new(name, seen)
            clip = clip_of(name, tracks, header, fps)
            n_frames, n_poses = n_frames + clip.n_frames, n_poses + clip.n_poses
            if header is None:  # else its metadata were checked for all clips together
                limits.check_frames(n_frames, n_poses)
            yield clip
        for name in header.clips if header else ():
            if name not in seen:
                yield clip_of(name, (), header, fps)


@contextmanager
def opened(
    source: Path | BinaryIO, *, threads: bool = True
) -> Iterator[tuple[Header | None, Iterator[tuple[str, PoseRows]]]]:
    """What a file says of itself, and its rows with the name of their clip, some at a time.

    However large the file is, no more of it than `trackrows.ROWS_AT_ONCE` rows is in memory.
    Without `threads` its columns are decoded one after the other, by this thread alone. An error
    of whoever takes the rows passes as it is; those of the file are without its name.
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
    """Let errors of data name the file."""
    try:
        yield
    except DataError as error:
        raise error.located(name) from error


def check_new(name: str, seen: set[str]) -> None:
    """Note a clip whose rows begin, and refuse one that began before."""
    if name in seen:
        raise DataError(
            f"clip {name!r}: expected its rows to stand together, got other clips between",
            hint="sort the rows by clip, track and frame",
        )
    seen.add(name)


def facts_of(name: str, header: Header) -> ClipFacts:
    """What the metadata says of a clip."""
    if name not in header.clips:
        raise DataError(
            f"clip {name!r}: expected only clips that the file's metadata lists, got one more",
            hint="write the file with stepvad, or without its stepvad metadata",
        )
    return header.clips[name]


def read_origin(path: Path) -> Mapping[str, object]:
    """How the poses of a file came about; empty where it does not tell."""
    with located(str(path)), _readable():
        metadata = parquetfile.read_metadata(path, **EXTRA).get(METADATA_KEY)
        return {} if metadata is None else Header.decode(metadata).origin


def write(
    clips: Iterable[Clip], path: Path, *, origin: Mapping[str, object] = MappingProxyType({})
) -> None:
    """Write clips as they come; they must share a skeleton and have distinct names.

    Small clips share a row group, large ones take several. A track without poses has no row, so
    it is not stored. `origin` tells how the poses came about, in words and numbers.
    """
    pyarrow, parquet = parquetfile.pyarrow_of("writing Parquet tracks", "parquet")
    clips = iter(clips)
    first = next(clips, None)
    if first is None:
        raise DataError(f"{path}: expected at least one clip, got none", hint="check the input")
    header = Header(first.skeleton, {}, origin)
    schema = trackrows.schema(first.skeleton.V, pyarrow)
    with (
        replacing(path, DataError) as temporary,
        parquet.ParquetWriter(
            temporary,
            schema,
            compression="zstd",
            use_dictionary=["clip", "track"],
            write_page_checksum=True,
        ) as writer,
    ):
        for group in row_groups(chain([first], clips), header, schema, pyarrow):
            writer.write_table(group, row_group_size=trackrows.ROWS_AT_ONCE)
        writer.add_key_value_metadata({METADATA_KEY: header.encode()})


def _read(parts: Iterator[tuple[str, PoseRows]]) -> Iterator[tuple[str, PoseRows]]:
    """The same rows; what goes wrong while they are read is an error of the data."""
    with _readable():
        yield from parts


def _readable() -> AbstractContextManager[None]:
    return parquetfile.as_data_errors("a Parquet file of tracks", **EXTRA)


def _grouped(parts: Iterator[tuple[str, PoseRows]]) -> Iterator[tuple[str, tuple[Track, ...]]]:
    """The tracks of each clip, which may span many row groups."""
    for name, group in groupby(parts, key=lambda part: part[0]):
        try:
            yield name, PoseRows.joined([rows for _, rows in group]).tracks()
        except DataError as error:
            raise error.located(f"clip {name!r}") from error


def clip_of(name: str, tracks: tuple[Track, ...], header: Header | None, fps: float | None) -> Clip:
    """A clip out of its tracks and what the metadata says of it, if anything."""
    if header is None:
        skeleton = skeletons.of_size(tracks[0].keypoints.shape[1]) if tracks else COCO17
        return Clip(name, fps, n_frames_of(tracks), tracks, skeleton)
    facts = facts_of(name, header)
    rate = facts.fps if fps is None else fps
    return Clip(name, rate, facts.n_frames, tracks, header.skeleton)


def row_groups(clips: Iterable[Clip], header: Header, schema: Any, pyarrow: Any) -> Iterator[Any]:
    """The rows of the clips in tables worth a row group; the header learns of each clip."""
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
    """Note a clip in the header, unless it cannot share the file with those before it."""
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
