"""The events of one camera: scores in, changes out. No processes, no clock, no files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from stepvad.codec import LARGEST, Integer, Number
from stepvad.detector import Detector
from stepvad.errors import DataError
from stepvad.events import down, rules
from stepvad.events.down import SlotPeople
from stepvad.events.record import Box, EndedBy, Record, event_id
from stepvad.events.rules import Change, ChangeKind, Event, Rules, WatchHours
from stepvad.model.scoring import WindowScores
from stepvad.poses import Clip, Pose, tracks_of
from stepvad.skeletons import COCO17, Skeleton
from stepvad.stream import Excuse

UPDATE_S = 1.0
"""Minimum interval between updates of an event; its end carries the final state."""
KEPT_S = 45.0
"""How long poses are kept, to explain events and to monitor drift."""
MOST_PEOPLE = 256
"""More people than an image shows; a sender of more would delay the other cameras."""

WENT_DOWN = "went down"
"""Label of an event in which somebody went down and was not seen again."""
WENT_DOWN_WORDS = "went down fast and was not seen again"

RecordChange = tuple[ChangeKind, Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraProfile:
    """The rules, model and zones by which a camera is watched."""

    camera: str
    rate: float
    """Time slots per second."""
    rules: Rules
    detector: Detector
    model_id: str
    model_sha256: str
    zones: Mapping[str, Sequence[tuple[float, float]]]
    """Corners as fractions of the image."""
    went_down: bool = False
    """True if people who go down fast and are not seen again raise an event."""
    hours: WatchHours | None = None
    """When events are raised; None: always."""
    zone_hours: Mapping[str, WatchHours] = field(default_factory=dict)
    """When people in a zone raise events; in a zone without hours: whenever the camera does."""
    excuse: Excuse | None = None
    """Lowers the scores of motion that somebody marked as normal."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The window of a high score: energies by scale, confidence, and where the person was."""

    track: Integer
    slot: Integer
    E: tuple[Number, ...]
    c: Number
    box: tuple[Number, Number, Number, Number] | None
    seen: Number
    """Share of its poses that were seen, not interpolated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraEventsState:
    """State of `CameraEvents`, without the kept poses and the windows in progress."""

    epoch: Annotated[int, Meta(ge=-1, le=LARGEST - 1)]
    wall0: rules.Time
    reported_s: rules.Time
    is_reported: bool
    open: Record | None
    detector: rules.EventDetectorState
    peaks: tuple[Peak, ...]


class CameraEvents:
    """The events of one camera across its connections.

    Every connection has its own `EventDetector`, so no event spans two of them; `next_epoch`
    returns a unique number for each.
    """

    def __init__(
        self,
        profile: CameraProfile,
        next_epoch: Callable[[], int],
        skeleton: Skeleton = COCO17,
        *,
        kept_s: float = KEPT_S,
    ) -> None:
        self.profile = profile
        self._kept_s = kept_s
        self.skeleton = skeleton
        self.open: Record | None = None
        """The ongoing event, as last reported or newer."""
        self.kept: deque[SlotPeople] = deque()
        self.epoch = -1
        self._next_epoch = next_epoch
        self.wall0 = 0.0
        """Wall-clock time of slot 0; it changes when a stream runs slower than it says."""
        self._reported_s = 0.0
        self._is_reported = True
        self.peak_slot = 0
        """The last slot of the window with the peak of the latest event."""
        self._size = (0, 0)
        self._peaks: dict[tuple[int, int], Peak] = {}
        """By track and slot: windows that may become the peak of an event."""
        self._detector = rules.EventDetector(profile.rules)

    def use(self, profile: CameraProfile) -> None:
        """Watch by other rules, zones and hours from the next slot on; an open event goes on."""
        self.profile = profile
        self._detector.use(profile.rules)

    def start_connection(self, wall0: float, epoch: int | None = None) -> None:
        """Start a connection whose slot 0 is at this wall-clock time; it may have a number."""
        if self.open is not None:
            raise DataError(
                f"camera {self.profile.camera}: expected the event {self.open.id} to be over, "
                "got a new connection",
                hint="end that event first",
            )
        self.epoch = self._next_epoch() if epoch is None else epoch
        self.wall0 = wall0
        self._detector = rules.EventDetector(self.profile.rules)
        self._peaks.clear()
        self.kept.clear()

    def state(self) -> CameraEventsState:
        """The state of its events, without the kept poses and the windows in progress."""
        # of all high windows, only those that an event or a candidate has as its peak matter
        at = {(e.peak_track, round(e.peak_s * self.profile.rate)) for e in self._detector.peaks()}
        return CameraEventsState(
            epoch=self.epoch,
            wall0=self.wall0,
            reported_s=self._reported_s,
            is_reported=self._is_reported,
            open=self.open,
            detector=self._detector.state(),
            peaks=tuple(self._peaks[key] for key in sorted(at) if key in self._peaks),
        )

    def restore(self, state: CameraEventsState) -> None:
        """Resume from `state`; the same scores then give the same changes."""
        self.epoch, self.wall0 = state.epoch, state.wall0
        self._reported_s, self._is_reported = state.reported_s, state.is_reported
        self.open = state.open
        self._detector.restore(state.detector)
        self._peaks = {(peak.track, peak.slot): peak for peak in state.peaks}
        if state.detector.open is not None:
            self.peak_slot = round(state.detector.open.peak_s * self.profile.rate)

    def wall(self, slot: int) -> float:
        """Wall-clock time of a slot."""
        return self.wall0 + slot / self.profile.rate

    def observe(
        self,
        slot: int,
        size: tuple[int, int],
        poses: Sequence[Pose],
        windows: WindowScores,
        looked: NDArray[np.float32] | None = None,
    ) -> list[RecordChange]:
        """Process the scores of a slot and return the changes.

        Muted windows and those outside the hours change nothing. `looked` is the share of each
        window's slots that had a frame, `(n,)`; by default all had one.
        """
        rate, now_s = self.profile.rate, slot / self.profile.rate
        self.keep(slot, size, poses)
        # scores that do not count become NaN: muted windows, and those outside the hours
        seen = windows.seen
        windows = rules.blank_muted(seen_of(windows, looked), self.profile.rules)
        if self.profile.hours is not None or self.profile.zone_hours:
            at = zip(windows.track_id.tolist(), windows.frame.tolist(), strict=True)
            watched = np.array([self.is_watched(*key) for key in at], np.bool_)
            windows = replace(windows, A=np.where(watched, windows.A, np.float32(np.nan)))
        # any window above the calm level may become the peak of an event
        for row in np.flatnonzero(self.profile.rules.calm <= windows.A).tolist():
            key = track, frame = int(windows.track_id[row]), int(windows.frame[row])
            E, c, share = windows.E[row].tolist(), float(windows.c[row]), float(seen[row])
            self._peaks[key] = Peak(track, frame, tuple(E), c, self._box(*key), share)
        found: list[RecordChange] = []
        for change in self._detector.update(now_s, windows, rate):
            found += self._changed(change, slot, windows)
        if self.profile.went_down:
            for descent in down.went_down(self.kept, rate, size):
                if self.is_watched(descent.track, descent.last):
                    found.append(self._went_down(descent, slot))
        # an event that goes on is reported again at times
        is_due = not self._is_reported and now_s - self._reported_s >= UPDATE_S
        if self.open is not None and is_due:
            found.append(self._report("update", self.open, slot))
        return found

    def keep(self, slot: int, size: tuple[int, int], poses: Sequence[Pose]) -> None:
        """Keep the people of a slot, for their boxes and for explanations; `observe` does, too."""
        self._size = size
        self.kept.append(SlotPeople(slot, tuple(poses)))
        self._forget_before(slot - self._kept_s * self.profile.rate)

    def miss(self, seconds: float) -> None:
        """Note time in which nobody could be judged; it ends no event."""
        self._detector.miss(seconds)

    def is_watched(self, track: int, slot: int) -> bool:
        """True if a person could raise an event in a slot: by the hours, and where they stand."""
        profile, wall = self.profile, self.wall(slot)
        if profile.hours is not None and not profile.hours.include(wall):
            return False
        closed = {zone for zone, hours in profile.zone_hours.items() if not hours.include(wall)}
        return not closed or closed.isdisjoint(self._zones_of(self._box(track, slot)))

    def end_open(self, by: EndedBy) -> list[RecordChange]:
        """End the open event because no more frames follow."""
        found: list[RecordChange] = []
        for change in self._detector.finish():
            found += self._end(change.event, by)
        return found

    def clip(self, tracks: Iterable[int] | None = None, *, first: int = 0) -> tuple[int, Clip]:
        """The slot of frame 0, and the kept poses of some or all people from slot `first` on."""
        wanted = None if tracks is None else set(tracks)
        since = max(first, self.kept[0].slot if self.kept else 0)
        # one row per pose: track, frame, joints (V, 2), confidences (V,)
        rows = [
            (pose.track_id, seen.slot - since, pose.keypoints, pose.confidence)
            for seen in self.kept
            if seen.slot >= since
            for pose in seen.poses
            if wanted is None or pose.track_id in wanted
        ]
        n = self.kept[-1].slot - since + 1 if self.kept else 0
        people = tracks_of(*map(np.array, zip(*rows, strict=True))) if rows else ()
        return since, Clip(self.profile.camera, self.profile.rate, n, people, self.skeleton)

    def _went_down(self, descent: down.Descent, slot: int) -> RecordChange:
        """Raise an event whose score is the threshold, or mark the open one."""
        rate, key = self.profile.rate, (descent.track, descent.last)
        kind: ChangeKind = "new" if self.open is None else "update"
        event = Event(
            first_s=descent.began / rate,
            last_s=slot / rate,
            tracks=(descent.track,),
            peak=self.profile.rules.threshold,
            peak_s=descent.last / rate,
            peak_track=descent.track,
        )
        # no window scored high: a peak without energies, which holds the box
        self._peaks.setdefault(key, Peak(*key, (), 0.0, self._box(*key), 1.0))
        record = self._record(self._detector.insert(event), None)
        if record.label != WENT_DOWN:
            record = replace(record, label=WENT_DOWN, why=WENT_DOWN_WORDS)
        self.open = record
        return self._report(kind, record, slot)

    def _changed(self, change: Change, slot: int, windows: WindowScores) -> list[RecordChange]:
        event = change.event
        match change.kind:
            case "new":
                self.open = self._record(event, windows)
                return [self._report("new", self.open, slot)]
            case "update":
                self.open = self._record(event, windows)
                self._is_reported = False
                return []
            case "end":
                return self._end(event, "calm")

    def _end(self, event: Event, by: EndedBy) -> list[RecordChange]:
        if self.open is None:
            return []
        over = self._record(event, None).ended(by, self.wall0 + event.last_s)
        self.open = None
        return [("end", over)]

    def _report(self, kind: ChangeKind, record: Record, slot: int) -> RecordChange:
        self._reported_s, self._is_reported = slot / self.profile.rate, True
        return kind, record

    def _record(self, event: Event, windows: WindowScores | None) -> Record:
        """The event in its current state; its id and start never change."""
        before, profile = self.open, self.profile
        self.peak_slot = round(event.peak_s * profile.rate)
        if before is None:
            first, track = round(event.first_s * profile.rate), event.tracks[0]
            before = Record(
                id=event_id(profile.camera, self.epoch, track, first),
                camera=profile.camera,
                score=event.peak,
                top_score=event.peak,
                start_time=self.wall0 + event.first_s,
                model_id=profile.model_id,
                model_sha256=profile.model_sha256,
                track_id=track,
                epoch=self.epoch,
                frame_seq=first,
                confidence=0.0,
                threshold=profile.rules.threshold,
                camera_fps=profile.rate,
                model_fps=profile.detector.config.fps,
            )
        # the highest current score of the people involved, or else the previous one
        score = before.score
        if windows is not None:
            own = np.isin(windows.track_id, event.tracks) & ~np.isnan(windows.A)
            score = float(windows.A[own].max()) if own.any() else score
        now = replace(
            before,
            score=score,
            top_score=event.peak,
            track_id=event.peak_track,
            tracks=event.tracks,
        )
        peak = self._peaks.get((event.peak_track, self.peak_slot))
        if peak is None:
            return now
        zones = dict.fromkeys([*before.zones, *self._zones_of(peak.box)])
        return replace(
            now,
            box=peak.box,
            zones=tuple(zones),
            confidence=peak.c,
            seen=peak.seen,
            scales=peak.E,
        )

    def _box(self, track: int, slot: int) -> Box | None:
        """Box of a person in a slot, or in the next one with a pose if the slot was missed."""
        found = None
        for seen in reversed(self.kept):
            if seen.slot < slot:
                break
            found = next((pose for pose in seen.poses if pose.track_id == track), found)
        return None if found is None else box_of(found)

    def _zones_of(self, box: Box | None) -> list[str]:
        """The zones that a person stands in, judged by the midpoint of the box's lower edge."""
        if box is None or not all(self._size):
            return []
        foot = (box[0] + box[2]) / 2 / self._size[0], box[3] / self._size[1]
        return [name for name, corners in self.profile.zones.items() if inside(foot, corners)]

    def _forget_before(self, oldest: float) -> None:
        """Drop poses of earlier slots, and their peaks once there are many."""
        while self.kept[0].slot < oldest:
            self.kept.popleft()
        if len(self._peaks) > 1024:
            self._peaks = {at: peak for at, peak in self._peaks.items() if peak.slot >= oldest}


def in_words(record: Record, summary: str, strangest: str | None = None) -> Record:
    """The event in the words of its explanation; that somebody went down comes first."""
    fell = record.label == WENT_DOWN
    why = f"{WENT_DOWN_WORDS}; {summary}" if fell else summary
    return replace(record, why=why, strangest=strangest)


def seen_of(windows: WindowScores, looked: NDArray[np.float32] | None) -> WindowScores:
    """The windows with the share of poses seen in the frames that there were.

    Whoever is seen in every frame of an overloaded camera is judged by what remains.
    """
    if looked is None:
        return windows
    return replace(windows, seen=np.minimum(windows.seen / looked, np.float32(1)))


def box_of(pose: Pose) -> Box:
    """Left, top, right and bottom of the joints that were found."""
    found = pose.keypoints[pose.confidence > 0]
    joints = found if len(found) else pose.keypoints
    (left, top), (right, bottom) = joints.min(axis=0).tolist(), joints.max(axis=0).tolist()
    return left, top, right, bottom


def inside(point: tuple[float, float], corners: Sequence[tuple[float, float]]) -> bool:
    """True if a polygon contains a point: a ray to the right crosses an odd number of edges."""
    x, y = point
    odd = False
    for (x1, y1), (x2, y2) in zip(corners, [*corners[1:], corners[0]], strict=True):
        if (y1 > y) != (y2 > y) and x < (x2 - x1) * (y - y1) / (y2 - y1) + x1:
            odd = not odd
    return odd
