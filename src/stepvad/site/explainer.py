"""Explain the scores of events in the background and store the explanations."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from stepvad.errors import DataError, StepvadError
from stepvad.explain.event import EventExplanation, explain_peak
from stepvad.formats import tracks
from stepvad.incidents.camera_events import CameraProfile
from stepvad.incidents.events import ChangeKind
from stepvad.incidents.record import Record
from stepvad.poses import Clip
from stepvad.site.background import Mailbox
from stepvad.site.store.events import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class EventPoses:
    """The people of an event: their poses, and the frame of the peak."""

    clip: Clip
    peak_frame: int
    track: int


@dataclass(frozen=True, slots=True)
class Explained:
    """Explanation of an event that may still be open."""

    camera: str
    event: str
    why: str


ExplainedQueue = Mailbox[Explained]
"""Explanations on their way back to scoring, which owns the open events."""


class Explainer:
    """Explains events when they start and end, and returns stored explanations."""

    def __init__(
        self, store: Store, profiles: Mapping[str, CameraProfile], explained: ExplainedQueue
    ) -> None:
        self._store, self._profiles, self._explained = store, profiles, explained

    def explain(self, kind: ChangeKind, record: Record, poses: EventPoses) -> None:
        """Store the poses of an event and its explanation."""
        if not poses.clip.n_poses:
            return
        self._store.put_poses(record.id, packed(poses.clip))
        try:
            found = self._look(record, poses)
        except StepvadError as error:
            logger.info("event %s: no explanation: %s", record.id, error)
            return
        self._store.put_explanation(record.id, found)
        if kind == "new":
            self._explained.put(Explained(record.camera, record.id, found.summary))

    def explanation(self, id: str) -> EventExplanation:
        """The stored explanation of an event."""
        found = self._store.explained(id)
        if found is None:
            raise DataError(
                f"event {id}: expected an explanation, got none",
                hint="it follows the event within moments, and is deleted with its poses",
            )
        return found

    def _look(self, record: Record, poses: EventPoses) -> EventExplanation:
        profile = self._profiles[record.camera]
        found = explain_peak(
            profile.detector, poses.clip, poses.track, poses.peak_frame, calm=profile.rules.calm
        )
        return found.explanation(profile.rate)


def packed(clip: Clip) -> bytes:
    """Serialize a clip as a track file."""
    return tracks.to_bytes(clip)


def unpacked(body: bytes) -> Clip:
    """Restore a clip from the output of `packed`."""
    return tracks.from_bytes(body)
