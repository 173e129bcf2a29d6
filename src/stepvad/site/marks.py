"""Events that operators judged: marks for the model that found them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from stepvad.calibration import Marked
from stepvad.calibration.marks import Marks
from stepvad.errors import StepvadError
from stepvad.incidents.record import Record
from stepvad.poses import Clip
from stepvad.site.explainer import unpacked
from stepvad.site.store.events import Store, open_store

logger = logging.getLogger(__name__)


def marks_of(data: Path, model_sha256: str) -> Marks:
    """Marks on events of a data directory that this model found."""
    with open_store(data) as store:
        return marks_in(store, model_sha256)


def marks_in(store: Store, model_sha256: str) -> Marks:
    """Marks on events that this model found, with their poses if still stored."""
    found = [one for one in store.events(limit=None) if one.model_sha256 == model_sha256]
    records = {one.id: one for one in found}
    every = store.marked()
    marked = [id for id in every if id in records]
    bodies = {id: body for id in marked if (body := store.poses(id)) is not None}
    if len(every) > len(marked):
        logger.info("marked events of other models, left alone: %d", len(every) - len(marked))
    if len(bodies) < len(marked):
        old = len(marked) - len(bodies)
        logger.info("marked events whose poses are too old to be kept: %d", old)
    return Marks(
        normal={id: Marked(camera=records[id].camera, peak=records[id].top_score) for id in marked},
        clips=_clips(bodies, records),
        not_normal=[id for id in records if id not in marked],
    )


def _clips(bodies: Mapping[str, bytes], records: Mapping[str, Record]) -> dict[str, Clip]:
    """A clip of the people in each event."""
    clips = {}
    for id, body in bodies.items():
        with leaving_out(f"event {id}"):
            clips[id] = people_of(records[id], unpacked(body))
    return clips


@contextmanager
def leaving_out(what: str) -> Iterator[None]:
    """Log that poses are damaged, deleted or of a newer version, and go on without them.

    One damaged file must not keep a site from the others.
    """
    try:
        yield
    except (StepvadError, OSError) as error:
        logger.warning("%s: left out, its poses cannot be read: %s", what, error)


def people_of(event: Record, clip: Clip) -> Clip:
    """The poses of the people in an event; of everybody if none of them has poses."""
    tracks = tuple(track for track in clip.tracks if track.id in event.tracks)
    return replace(clip, name=event.id, tracks=tracks or clip.tracks)
