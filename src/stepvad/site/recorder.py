"""Poses of people in files: recorded, deleted for room, and played back."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import tempfile
import time
from calendar import timegm
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import StepvadError, os_reason
from stepvad.events.record import Record
from stepvad.files import remove_leftovers
from stepvad.formats import read_clip, tracks, write_clip
from stepvad.poses import Clip, Pose, Track, tracks_of
from stepvad.site.status import UNSEEN, LiveStatus, RecentFrame, whole_pixels
from stepvad.site.store.events import Store
from stepvad.skeletons import COCO17, Skeleton, strokes

logger = logging.getLogger(__name__)
RECORDINGS = "poses"
"""Directory of recorded poses in the data directory, with one subdirectory per camera."""
PART_S = 120.0
"""Seconds of footage per file, the most that a crash loses."""
OFF_S = 2.0
"""How far the time of a frame may be from that of its file, which replays go by."""
FIRST_PART_S = 10.0
"""Seconds per file of a camera without a limit, which waits for its first footage."""
FREE_MB = 8.0
"""Free space below which recordings are deleted: room for the store's log and some poses."""
MOST_FILES = 10
"""Maximum number of files deleted per call."""
DAY_S = 86400.0
_File = tuple[float, int, Path]
"""Modification time, size and path."""
Row = tuple[int, int, NDArray[np.float32], NDArray[np.float32]]

BEFORE_S, AFTER_S = 8.0, 6.0
"""Seconds shown before and after a moment or the peak of an event."""
NEAR_S = 3.0
"""A moment without a frame this near was not seen."""
_NAME = re.compile(r"(?P<camera>.+)-(?P<time>\d{8}T\d{6})-(?P<ms>\d{3})")


class Recorder:
    """Collects the poses of one camera into files; tracks do not continue across files."""

    def __init__(
        self,
        directory: Path,
        camera: str,
        rate: float,
        skeleton: Skeleton = COCO17,
        *,
        part_s: float = PART_S,
    ) -> None:
        self._directory = directory / camera
        self.rate = rate
        """Slots per second; it changes between two files only."""
        self._camera, self._skeleton, self._part_s = camera, skeleton, part_s
        self._rows: list[Row] = []
        self._first: tuple[int, float] | None = None
        self._last = 0

    def record(self, slot: int, wall: float, poses: Sequence[Pose]) -> Clip | None:
        """Add a slot; return a clip when one is complete."""
        # a part is full, the clock of the slots began anew, or the stream runs slow
        done = None
        if self._first is not None:
            at = slot - self._first[0]
            off_s = abs(wall - self._first[1] - at / self.rate)
            if not 0 <= at < self._part_s * self.rate or off_s > OFF_S:
                done = self.finish()
        if self._first is None:
            self._first = slot, wall
        at = slot - self._first[0]
        self._last = at
        self._rows += [(pose.track_id, at, pose.keypoints, pose.confidence) for pose in poses]
        return done

    def finish(self) -> Clip | None:
        """The poses so far as a clip; None if no person was seen."""
        rows, first = self._rows, self._first
        self._rows, self._first = [], None
        if first is None or not rows:
            return None
        # track, frame, joints and confidence of each pose: (n,), (n,), (n, V, 2), (n, V)
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        tracks = tracks_of(columns[0], columns[1], columns[2], columns[3])
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(first[1]))
        name = f"{self._camera}-{stamp}-{int(first[1] % 1 * 1000):03}"
        return Clip(name, self.rate, self._last + 1, tracks, self._skeleton)

    def save(self, clip: Clip) -> None:
        """Write a clip; if the disk is full, delete the oldest files and retry once."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._directory / f"{clip.name}.parquet"
        try:
            write_clip(clip, path)
        except (StepvadError, OSError) as error:
            if not ran_out_of_space(error) or not make_room(self._directory.parent.glob("*/")):
                raise
            write_clip(clip, path)


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded file: its camera and when it begins."""

    path: Path
    camera: str
    begin: float
    """Wall-clock time of its first frame."""

    @classmethod
    def from_path(cls, path: Path) -> Recording | None:
        """Parse the name that the recorder gave a file; None if it is another file."""
        found = _NAME.fullmatch(path.stem)
        if found is None:
            return None
        try:
            seconds = timegm(time.strptime(found["time"], "%Y%m%dT%H%M%S"))
        except ValueError:
            return None
        return cls(path, found["camera"], seconds + int(found["ms"]) / 1000)


def find_recordings(directory: Path) -> list[Recording]:
    """The recordings below a directory, oldest first."""
    found = (Recording.from_path(path) for path in directory.glob("*/*.parquet"))
    return sorted((one for one in found if one is not None), key=lambda one: (one.begin, one.path))


class Replays:
    """Scenes of events and moments of one site."""

    def __init__(self, store: Store, status: LiveStatus, recordings: Path) -> None:
        self._store, self._status, self._recordings = store, status, recordings

    def event(self, id: str) -> Moment:
        """Everybody in view around the peak of an event."""
        record, body = self._store.event(id), self._store.poses(id)
        if record is None or body is None:
            return Moment(event=id, words="Its poses have not arrived yet, or are no longer kept.")
        try:
            explained, clip = self._store.explained(id), tracks.from_bytes(body)
            peak = None if explained is None else explained.frame
            return Moment(
                event=id, scene=event_scene(record, clip, peak, self._size(record.camera))
            )
        except StepvadError as error:
            logger.warning("event %s: its poses cannot be read: %s", id, error)
            return Moment(event=id, words="Its poses cannot be read.")

    def moment(self, camera: str, at: float) -> Moment:
        """The event at that time if there is one, else what memory or a recording holds."""
        # an event at that time, else what memory holds, else a recording
        events = self._store.events(camera=camera, since=at - 3600, until=at + 1, limit=50)
        for one in events:
            if one.start_time - 1 <= at <= (one.end_time or time.time()) + 1:
                return Moment(event=one.id)
        frames = self._status.recent.between(camera, at - BEFORE_S, at + AFTER_S)
        if any(abs(one.wall - at) <= NEAR_S for one in frames):
            return Moment(scene=self._remembered(camera, at, frames))
        recorded = self._recorded(camera, at)
        if recorded is not None:
            return Moment(scene=recorded)
        return Moment(words=self._why_not(camera, at))

    def _remembered(self, camera: str, at: float, frames: Sequence[RecentFrame]) -> Scene:
        # frames in memory have slots by their time, and people by track
        view = next(one for one in self._status.snapshot().cameras if one.name == camera)
        start = frames[0].wall
        slots = [round((one.wall - start) * view.rate) for one in frames]
        found: dict[int, list[tuple[int, NDArray[np.int16]]]] = {}
        for slot, frame in zip(slots, frames, strict=True):
            for track, joints in zip(frame.tracks, frame.joints, strict=True):
                found.setdefault(track, []).append((slot, joints))
        return Scene(
            camera=camera,
            fps=view.rate,
            n_frames=slots[-1] + 1,
            size=frames[-1].size,
            bones=view.bones,
            # of two frames in one slot the later one counts
            people=tuple(
                _scene_person(track, [*latest], np.stack([*latest.values()]))
                for track, rows in found.items()
                for latest in [dict(rows)]
            ),
            at=round((at - start) * view.rate),
            start=start,
        )

    def _recorded(self, camera: str, at: float) -> Scene | None:
        """The scene in the recording that covers a time; None if there is none."""
        for path in (self._recordings / camera).glob("*.parquet"):
            one = Recording.from_path(path)
            if one is None or not one.begin <= at <= one.begin + PART_S:
                continue
            try:
                clip = read_clip(path)
            except StepvadError:
                continue  # deleted or damaged meanwhile
            middle = round((at - one.begin) * clip.rate())
            if middle < clip.n_frames:
                scene = scene_of(camera, clip, middle, self._size(camera))
                first = one.begin + scene.first / clip.rate()
                return replace(scene, at=middle - scene.first, start=first)
        return None

    def _size(self, camera: str) -> tuple[int, int] | None:
        shown = self._status.frames_after({}).get(camera)  # none before the first frame
        return None if shown is None else shown[1].size

    def _why_not(self, camera: str, at: float) -> str:
        if at > time.time() + 1:
            return "That is in the future."
        if (self._recordings / camera).is_dir():
            return "Nobody was in view then, or the recording is already deleted."
        return (
            "This moment is no longer in memory. The site keeps the last ten minutes, and more "
            "only with record = true for this camera."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """An event or a scene at some moment, or words for why there is neither."""

    event: str | None = None
    """Id of the event at that time."""
    scene: Scene | None = None
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """Everybody in view of a camera for some seconds, in pixels of its picture."""

    camera: str
    fps: float
    n_frames: int
    size: tuple[int, int]
    """Width and height of the picture in pixels."""
    bones: list[list[int]]
    """Lines between joints."""
    people: tuple[ScenePerson, ...]
    at: int | None
    """The frame of the peak, or of the moment asked for."""
    first: int = 0
    """Number of the first frame in the stored poses, as explanations count."""
    start: float | None = None
    """Unix time of the first frame, if known."""
    deciding: int | None = None
    """The person with the top score."""
    involved: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ScenePerson:
    """One person."""

    track: int
    frames: list[int]
    xy: list[list[int | None]]
    """In each of these frames x and y of each joint in whole pixels, None where not seen."""


def event_scene(
    record: Record, clip: Clip, peak: int | None, size: tuple[int, int] | None = None
) -> Scene:
    """The seconds around the peak of an event, in the poses that are kept of it."""
    middle = round(BEFORE_S * clip.rate()) if peak is None else peak
    scene = scene_of(record.camera, clip, middle, size)
    at = None if peak is None else peak - scene.first
    return replace(scene, at=at, deciding=record.track_id, involved=record.tracks)


def scene_of(camera: str, clip: Clip, middle: int, size: tuple[int, int] | None = None) -> Scene:
    """The seconds around a frame of a clip; without a size, a picture large enough for it."""
    rate = clip.rate()
    # some seconds before and after the middle
    first = max(middle - round(BEFORE_S * rate), 0)
    end = min(middle + round(AFTER_S * rate) + 1, clip.n_frames)
    parts = [track.between(first, end) for track in clip.tracks]
    return Scene(
        camera=camera,
        fps=rate,
        n_frames=max(end - first, 1),
        size=size or _reach(parts),
        bones=strokes(clip.skeleton),
        people=tuple(_of_track(part, first) for part in parts if len(part)),
        at=None,
        first=first,
    )


def retain(directory: Path, *, days: float, most_mb: float, now: float) -> int:
    """Delete expired files, then the oldest until the size limit is met; return how many."""
    # too old, then the oldest of what is too much
    files = _files(directory.glob("*/"))
    kept = [file for file in files if file[0] >= now - days * DAY_S]
    total = sum(size for _, size, _ in kept)
    gone = files[: len(files) - len(kept)]
    while kept and total > most_mb * 1e6:
        gone.append(kept.pop(0))
        total -= gone[-1][1]
    for _, _, path in gone:
        with suppress(OSError):
            path.unlink()
    for place in directory.glob("*/"):
        remove_leftovers(place)
    return len(gone)


def make_room(
    directories: Iterable[Path], free_mb: float = FREE_MB, *, most: int = MOST_FILES
) -> list[Path]:
    """Delete the oldest recorded files until `free_mb` is free, at most `most` per call.

    Nothing is deleted while that much can be written next to the files, whatever error the caller
    saw. Disk errors never raise. Returns the deleted files.
    """
    deleted: list[Path] = []
    # the oldest first, and no more than needed
    for _, _, path in _files(directories)[:most]:
        if not is_short(path.parent, free_mb):
            break
        try:
            path.unlink()
        except OSError as error:
            logger.warning("recorded poses %s cannot be deleted: %s", path.name, os_reason(error))
            continue
        logger.warning("disk full: recorded poses %s deleted to make room", path.name)
        deleted.append(path)
    return deleted


def is_short(directory: Path, free_mb: float) -> bool:
    """True if the disk or a quota leaves less than `free_mb` in a directory."""
    size = int(free_mb * 1e6)
    try:
        # a quota shows only when the room is asked for
        if shutil.disk_usage(directory).free < size:
            return True
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # quotas are enforced only on allocation
    except OSError as error:
        return ran_out_of_space(error)
    return False


def ran_out_of_space(error: BaseException) -> bool:
    """True if an error was caused by a full disk or a quota."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        cause = cause.__cause__
    return False


def _files(directories: Iterable[Path]) -> list[_File]:
    """Time, size and path of recorded files, oldest first."""
    found = []
    for directory in directories:
        for path in directory.glob("*.parquet"):
            with suppress(OSError):
                facts = path.stat()
                found.append((facts.st_mtime, facts.st_size, path))
    return sorted(found)


def _of_track(track: Track, first: int) -> ScenePerson:
    poses = [
        Pose(track.id, joints, sure)
        for joints, sure in zip(track.keypoints, track.confidence, strict=True)
    ]
    return _scene_person(track.id, (track.frames - first).tolist(), whole_pixels(poses))


def _scene_person(track: int, frames: list[int], joints: NDArray[np.int16]) -> ScenePerson:
    # x and y of each joint in turn, (frames, 2 V); null in JSON where not seen
    rows = joints.reshape(len(frames), -1).tolist()
    xy = [[None if place == UNSEEN else place for place in row] for row in rows]
    return ScenePerson(track, frames, xy)


def _reach(tracks: Iterable[Track]) -> tuple[int, int]:
    """A picture large enough for all joints, for a camera that sent none yet."""
    places = [track.keypoints.reshape(-1, 2) for track in tracks if len(track)]
    if not places:
        return 16, 9
    right, bottom = np.nan_to_num(np.concatenate(places)).max(axis=0).tolist()
    return max(int(right * 1.05), 16), max(int(bottom * 1.05), 9)
