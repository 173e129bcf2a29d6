"""Why an event has its score: made in the background, kept with the event."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stepvad.errors import DataError, StepvadError
from stepvad.explain.look import look_at
from stepvad.formats import read_clip, write_clip
from stepvad.live.ledger import Cast, Entry
from stepvad.live.record import Record
from stepvad.live.store import Store
from stepvad.live.watcher import Subject
from stepvad.poses import Clip

logger = logging.getLogger(__name__)


class Explainer:
    """Looks into events as they begin and end, and again when somebody asks."""

    def __init__(
        self,
        store: Store,
        subjects: Mapping[str, Subject],
        *,
        said: Callable[[Record, str], None],
    ) -> None:
        self._store, self._subjects, self._said = store, subjects, said

    def look(self, entry: Entry) -> None:
        """Keep the poses of an event, and why it has its score."""
        record, cast = entry.record, entry.cast
        if cast is None or not cast.clip.n_poses:
            return
        self._store.put_poses(record.id, packed(cast.clip))
        try:
            facts = self._explained(record, cast)
        except StepvadError as error:
            logger.info("event %s: no explanation: %s", record.id, error)
            return
        self._store.put_explanation(record.id, facts)
        if entry.kind == "new":
            self._said(record, in_words(facts))

    def explanation(self, id: str) -> dict[str, Any]:
        """Why an event has its score, as it is kept."""
        facts = self._store.explanation(id)
        if facts is None:
            raise DataError(
                f"event {id}: expected an explanation, got none",
                hint="it comes a moment after the event, and goes with its poses",
            )
        return facts

    def _explained(self, record: Record, cast: Cast) -> dict[str, Any]:
        subject = self._subjects[record.camera]
        found = look_at(
            subject.detector, cast.clip, cast.track, cast.peak_frame, calm=subject.rules.calm
        )
        return found.as_dict(subject.rate)


def in_words(facts: Mapping[str, Any]) -> str:
    """What is unusual, in one line."""
    return "; ".join(word["says"] for word in facts["words"]) or "unusual motion"


def packed(clip: Clip) -> bytes:
    """A clip as the bytes of a track file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "event.parquet"
        write_clip(clip, path)
        return path.read_bytes()


def unpacked(body: bytes) -> Clip:
    """The clip that `packed` made these bytes of."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "event.parquet"
        path.write_bytes(body)
        return read_clip(path)
