"""What people did at an event or at any moment: everybody in view, frame by frame."""

from __future__ import annotations

import logging
import re
import time
from calendar import timegm
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import StepvadError
from stepvad.formats import read_clip
from stepvad.incidents.record import Record
from stepvad.intake.recent import UNSEEN, RecentFrame, whole_pixels
from stepvad.intake.status import LiveStatus
from stepvad.poses import Clip, Pose, Track
from stepvad.site.explainer import unpacked
from stepvad.site.recorder import PART_S
from stepvad.site.store.events import Store
from stepvad.skeletons import strokes

logger = logging.getLogger(__name__)

BEFORE_S, AFTER_S = 8.0, 6.0
"""Seconds shown before and after a moment or the peak of an event."""
NEAR_S = 3.0
"""A moment without a frame this near was not seen."""
_STAMP = re.compile(r"-(\d{8}T\d{6})-(\d{3})$")


@dataclass(frozen=True, slots=True, eq=False)
class ScenePerson:
    """One person."""

    track: int
    frames: list[int]
    xy: list[list[int | None]]
    """In each of these frames x and y of each joint in whole pixels, None where not seen."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What there is of a moment: an event, a scene, or words for why there is neither."""

    event: str | None = None
    """Id of the event at that time."""
    scene: Scene | None = None
    words: str = ""


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
            return Moment(event=id, scene=self._of_event(record, unpacked(body)))
        except StepvadError as error:
            logger.warning("event %s: its poses cannot be read: %s", id, error)
            return Moment(event=id, words="Its poses cannot be read.")

    def _of_event(self, record: Record, clip: Clip) -> Scene:
        explained = self._store.explained(record.id)
        peak = None if explained is None else explained.frame
        middle = round(BEFORE_S * clip.rate()) if peak is None else peak
        scene = self._scene(record.camera, clip, middle)
        at = None if peak is None else peak - scene.first
        return replace(scene, at=at, deciding=record.track_id, involved=record.tracks)

    def moment(self, camera: str, at: float) -> Moment:
        """The event at that time if there is one, else what memory or a recording holds."""
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
            people=tuple(_person(track, rows) for track, rows in found.items()),
            at=round((at - start) * view.rate),
            start=start,
        )

    def _recorded(self, camera: str, at: float) -> Scene | None:
        """The scene in the recording that covers a time; None if there is none."""
        for path in (self._recordings / camera).glob("*.parquet"):
            start = recorded_at(path)
            if start is None or not start <= at <= start + PART_S:
                continue
            try:
                clip = read_clip(path)
            except StepvadError:
                continue  # deleted or damaged meanwhile
            middle = round((at - start) * clip.rate())
            if middle < clip.n_frames:
                scene = self._scene(camera, clip, middle)
                first = start + scene.first / clip.rate()
                return replace(scene, at=middle - scene.first, start=first)
        return None

    def _scene(self, camera: str, clip: Clip, middle: int) -> Scene:
        """The seconds around a frame of a clip."""
        rate = clip.rate()
        first = max(middle - round(BEFORE_S * rate), 0)
        end = min(middle + round(AFTER_S * rate) + 1, clip.n_frames)
        parts = [track.between(first, end) for track in clip.tracks]
        return Scene(
            camera=camera,
            fps=rate,
            n_frames=max(end - first, 1),
            size=self._size(camera) or _reach(parts),
            bones=strokes(clip.skeleton),
            people=tuple(_of_track(part, first) for part in parts if len(part)),
            at=None,
            first=first,
        )

    def _size(self, camera: str) -> tuple[int, int] | None:
        """The size of the camera's picture, if a frame came since the start."""
        found = self._status.frames_after({}).get(camera)
        return None if found is None else found[1].size

    def _why_not(self, camera: str, at: float) -> str:
        if at > time.time() + 1:
            return "That is in the future."
        if (self._recordings / camera).is_dir():
            return "Nobody was in view then, or the recording is already deleted."
        return (
            "This moment is no longer in memory. The site keeps the last ten minutes, and more "
            "only with record = true for this camera."
        )


def recorded_at(path: Path) -> float | None:
    """Wall-clock time of the first frame of a recorded file, by its name."""
    found = _STAMP.search(path.stem)
    if found is None:
        return None
    try:
        return timegm(time.strptime(found[1], "%Y%m%dT%H%M%S")) + int(found[2]) / 1000
    except ValueError:
        return None


def _person(track: int, rows: Sequence[tuple[int, NDArray[np.int16]]]) -> ScenePerson:
    latest = dict(rows)  # two frames in one slot: the later one
    return _scene_person(track, [*latest], np.stack([*latest.values()]))


def _of_track(track: Track, first: int) -> ScenePerson:
    poses = [
        Pose(track.id, joints, sure)
        for joints, sure in zip(track.keypoints, track.confidence, strict=True)
    ]
    return _scene_person(track.id, (track.frames - first).tolist(), whole_pixels(poses))


def _scene_person(track: int, frames: list[int], joints: NDArray[np.int16]) -> ScenePerson:
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
