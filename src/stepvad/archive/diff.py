"""Compare two models over one archive: events gained and lost by the new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np

from stepvad.archive import manifest
from stepvad.archive.layout import SUFFIX, camera_of, date_of, directory
from stepvad.archive.scorefacts import ClipWindows
from stepvad.archive.scorefile import ClipScores, read_facts, read_scores
from stepvad.archive.storage import Directory
from stepvad.calibration import RULES, file
from stepvad.errors import DataError, StepvadError
from stepvad.incidents.events import Event, Rules, blank_muted, find, high_or_next
from stepvad.model.scoring import WindowScores
from stepvad.progress import Progress, Report, silent

WITHIN_S = 3.0
"""Events of both models at most this far apart count as the same, as within one model."""

RulesOf = Callable[[str], Rules]
"""Returns the event rules of a camera."""


@dataclass(frozen=True, slots=True)
class Changed:
    """An event that only one of the models has."""

    kind: Literal["gained", "lost"]
    date: str
    camera: str
    clip: str
    event: Event


@dataclass(frozen=True, slots=True)
class CameraDiff:
    """Counts of changes for one camera."""

    camera: str
    clips: int
    """Clips that both models scored."""
    old: int
    """Events of the old model."""
    new: int
    gained: int
    lost: int


@dataclass(frozen=True, slots=True)
class Difference:
    """The result of a comparison."""

    lines: tuple[CameraDiff, ...]
    changed: tuple[Changed, ...]
    only_old: int
    """Clips scored only by the old model, which are not compared."""
    only_new: int


@dataclass(frozen=True, slots=True)
class Side:
    """One model's scores and its event rules."""

    place: Directory
    rules_of: RulesOf

    @classmethod
    def by_threshold(cls, place: Directory, threshold: float) -> Side:
        """Use one threshold for all cameras."""
        rules = replace(RULES, threshold=threshold)
        return cls(place, lambda camera: rules)

    @classmethod
    def by_calibration(cls, place: Directory, calibration: Path) -> Side:
        """Use the thresholds of a calibration, which must belong to the model that scored."""
        made = file.read(calibration)
        facts = manifest.read(place)
        scored_by = made.model_sha256 if facts is None else facts.identity.model_sha256
        if scored_by != made.model_sha256:
            raise StepvadError(
                f"{calibration}: expected the calibration of model {scored_by[:12]}, "
                f"got that of {made.model_sha256[:12]}",
                hint="give the calibration of the model that wrote the scores",
            )
        return cls(place, made.rules_of)


def compare(
    old: Side,
    new: Side,
    *,
    fps: float | None = None,
    within_s: float = WITHIN_S,
    report: Report = silent,
) -> Difference:
    """Find events gained and lost in clips that both models scored, one directory at a time.

    Args:
        fps: Frame rate of clips that do not store one.
        within_s: How far apart events may be to count as the same.
    """
    files = [_by_directory(side.place) for side in (old, new)]
    counts: dict[str, Counter[str]] = {}
    changed: list[Changed] = []
    only: Counter[str] = Counter()
    directories = sorted({*files[0], *files[1]})
    for done, place in enumerate(directories):
        report(Progress("comparing", done, len(directories)))
        name = f"{place}/x"
        camera, date = camera_of(name), date_of(name)
        before, after = (
            _events(side, several.get(place, ()), camera, fps)
            for side, several in zip((old, new), files, strict=True)
        )
        only["old"] += len(before.keys() - after.keys())
        only["new"] += len(after.keys() - before.keys())
        for clip in sorted(before.keys() & after.keys()):
            gained, lost = gained_and_lost(before[clip], after[clip], within_s)
            changed += [Changed("gained", date, camera, clip, event) for event in gained]
            changed += [Changed("lost", date, camera, clip, event) for event in lost]
            counts.setdefault(camera, Counter()).update(
                clips=1,
                old=len(before[clip]),
                new=len(after[clip]),
                gained=len(gained),
                lost=len(lost),
            )
    report(Progress("comparing", len(directories), len(directories)))
    columns = ("clips", "old", "new", "gained", "lost")
    lines = [CameraDiff(camera, *(n[c] for c in columns)) for camera, n in sorted(counts.items())]
    return Difference(tuple(lines), tuple(changed), only["old"], only["new"])


def gained_and_lost(
    old: Sequence[Event], new: Sequence[Event], within_s: float = WITHIN_S
) -> tuple[list[Event], list[Event]]:
    """New events with no old one near them, and old events with no new one near them."""

    def near(event: Event, others: Sequence[Event]) -> bool:
        return any(
            event.first_s - other.last_s <= within_s and other.first_s - event.last_s <= within_s
            for other in others
        )

    gained = [event for event in new if not near(event, old)]
    return gained, [event for event in old if not near(event, new)]


def _by_directory(place: Directory) -> dict[str, list[str]]:
    """Score files by directory."""
    names = [stored.name for stored in place.files(SUFFIX)]
    if not names:
        raise StepvadError(
            f"{place.url}: expected scores of archive score, got none",
            hint="score the archive first: stepvad archive score POSES -o SCORES --model MODEL",
        )
    return {where: [*several] for where, several in groupby(sorted(names, key=_order), directory)}


def _order(name: str) -> tuple[str, str]:
    return directory(name), name


def _events(
    side: Side, names: Iterable[str], camera: str, fps: float | None
) -> dict[str, list[Event]]:
    """Events of every clip in the given files of one camera."""
    rules = side.rules_of(camera)
    found: dict[str, list[Event]] = {}
    for name in names:
        shown = side.place.named(name)
        with side.place.open(name) as file:
            clips = read_facts(file, shown).clips
            found |= {clip: [] for clip in clips}
            file.seek(0)
            for clip, parts in groupby(read_scores(file, shown), key=lambda part: part.clip):
                windows = _that_matter(parts, rules)
                found[clip] = find(windows, _rate(clip, clips, fps, shown), rules)
    return found


def _rate(clip: str, clips: Mapping[str, ClipWindows], fps: float | None, name: str) -> float:
    rate = (clips[clip].fps if clip in clips else None) or fps
    if rate is None:
        raise DataError(
            f"{name}: clip {clip!r}: expected a frame rate, got none",
            hint="give it with --fps",
        )
    return float(rate)


def _that_matter(parts: Iterator[ClipScores], rules: Rules) -> WindowScores:
    """Keep only windows above the calm level and the ones right after, to bound memory."""
    kept: list[WindowScores] = []
    before = 0, False
    for part in parts:
        windows = blank_muted(part.windows, rules)
        mask, before = high_or_next(windows, rules, before)
        kept.append(windows.part(np.flatnonzero(mask)))
    return WindowScores.join(kept, 0)
