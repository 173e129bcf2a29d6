"""Calibration: normal footage scored, thresholds with a promise, and the file beside a model."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from stepvad.codec import Count, NewerVersionError, Number, Positive, decode, to_plain
from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import DataError, Report, StepvadError, os_reason, silent
from stepvad.events import drift
from stepvad.events import threshold as thresholds
from stepvad.events.drift import BlockStats
from stepvad.events.rules import Rules
from stepvad.events.threshold import Counted, Marked, NormalClip, Threshold
from stepvad.files import read_bounded, replacing
from stepvad.model import modelfile
from stepvad.poses import MAX_FPS, Clip

logger = logging.getLogger(__name__)

RULES = Rules(threshold=1.0)
"""Default rules for events; a calibration sets its own threshold."""
SAME_RATE = 0.01
"""Relative difference up to which two frame rates are one: 29.97 and 30."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Thresholds derived from normal footage, for all cameras together and for each."""

    model_sha256: str
    """Digest of the model that gave the scores."""
    rules: Rules
    """Rules for events, with the threshold for all cameras."""
    threshold: Threshold
    cameras: Mapping[str, Threshold] = field(default_factory=dict)
    """Thresholds of cameras with enough footage of their own to keep the promise."""
    counted: Mapping[str, Counted] = field(default_factory=dict)
    """Events of each camera at all levels; lets more footage be added later."""
    marked: Mapping[str, Marked] = field(default_factory=dict)
    """Alerts marked as normal, by id."""
    block_stats: Mapping[str, BlockStats] = field(default_factory=dict)
    """Statistics of each camera's footage, to detect drift."""
    rates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Frames per second of each camera's footage, ascending; empty if it states none."""

    def rules_of(self, camera: str) -> Rules:
        """Rules for events of a camera, with its own threshold or else the one for all."""
        return replace(self.rules, threshold=self.cameras.get(camera, self.threshold).value)

    def rate_note(self, config: Config, fps: float, camera: str | None = None) -> str | None:
        """The reason why its thresholds do not hold at this frame rate; None if they do.

        A model that resamples has comparable scores at every rate.
        """
        own = self.rates.get(camera or "", ())
        known = own if camera in self.cameras else sorted({*chain(*self.rates.values())})
        is_same = any(math.isclose(fps, rate, rel_tol=SAME_RATE) for rate in known)
        if not known or is_same or (config.clock and config.fps is not None):
            return None
        rates = " and ".join(f"{rate:g}" for rate in known)
        return (
            f"the threshold was calibrated on footage of {rates} frames per second, this footage "
            f"has {fps:g}: its promise does not hold; calibrate on footage of {fps:g} per second, "
            "or fit with --clock"
        )


def calibrate(
    detector: Detector,
    clips: Iterable[Clip],
    *,
    alerts_per_hour: float,
    confidence: float = 0.95,
    rules: Rules = RULES,
    fps: float | None = None,
) -> Threshold:
    """The lowest threshold that promises at most `alerts_per_hour` false events per camera-hour.

    `clips` must show normal behaviour, and the detector must not be fitted on them. `rules` define
    events; their own threshold is ignored. `fps` is the frame rate of clips without a rate.

    Raises:
        DataError: If the footage cannot support the promise; says how much more is needed.

    Examples:
        >>> calibrate(detector, clips, alerts_per_hour=0.04)
        Traceback (most recent call last):
        stepvad.errors.DataError: expected footage with at least 20 events ..., got ...
    """
    scored = [
        NormalClip.from_scores(clip, detector.score(clip.with_rate(fps)), fps) for clip in clips
    ]
    counted = Counted.from_clips(scored, thresholds.levels_for(scored, rules), rules)
    return thresholds.threshold_for(counted, alerts_per_hour, confidence=confidence)


def calibrate_cameras(
    footage: Mapping[str, Sequence[NormalClip]],
    *,
    model_sha256: str,
    alerts_per_hour: float,
    confidence: float = 0.95,
    rules: Rules = RULES,
) -> Calibration:
    """Find thresholds for all cameras together and for each, with everything a site stores.

    `footage` holds scored normal clips of each camera that the model was not fitted on. If it is
    too little for the promise, the threshold is provisional and promises nothing.
    """
    # every camera is counted at the same levels, so that their counts can be joined
    levels = thresholds.levels_for(chain(*footage.values()), rules)
    counted = {name: Counted.from_clips(clips, levels, rules) for name, clips in footage.items()}
    made = from_counts(
        counted,
        model_sha256=model_sha256,
        alerts_per_hour=alerts_per_hour,
        confidence=confidence,
        rules=rules,
    )
    rates = {name: tuple(sorted({clip.fps for clip in clips})) for name, clips in footage.items()}
    return replace(made, rates=rates)


def from_counts(
    counted: Mapping[str, Counted],
    *,
    model_sha256: str,
    alerts_per_hour: float,
    confidence: float,
    rules: Rules,
    marked: Mapping[str, Marked] | None = None,
) -> Calibration:
    """Thresholds from events already counted and alerts marked as normal.

    If all footage together is too little for the promise, the threshold is provisional.
    """
    all_counted = thresholds.with_marked(counted, marked or {})
    first, *others = all_counted.values()
    threshold = thresholds.threshold_or_guess(
        first.joined(others), alerts_per_hour, confidence=confidence
    )
    own: dict[str, Threshold] = {}
    for camera, events in all_counted.items() if others else ():
        with suppress(DataError):  # not enough footage of its own
            own[camera] = thresholds.threshold_for(events, alerts_per_hour, confidence=confidence)
    return Calibration(
        model_sha256=model_sha256,
        rules=replace(rules, threshold=threshold.value),
        threshold=threshold,
        cameras=own,
        counted=counted,
        marked=marked or {},
    )


@dataclass(frozen=True, slots=True)
class ScoredFootage:
    """The scored clips of each camera, and their block statistics."""

    detector: Detector
    clips: dict[str, list[NormalClip]] = field(default_factory=dict)
    block_stats: dict[str, BlockStats] = field(default_factory=dict)

    def score(
        self,
        camera: str,
        clips: Iterable[Clip],
        *,
        fps: float | None = None,
        report: Report = silent,
    ) -> None:
        """Score more footage of a camera; `fps` is for clips without a rate."""
        for clip in (clip.with_rate(fps) for clip in clips):
            scores, stats = drift.score_with_stats(self.detector, clip, clip.rate(), report=report)
            self.clips.setdefault(camera, []).append(NormalClip.from_scores(clip, scores))
            before = [self.block_stats[camera]] if camera in self.block_stats else []
            self.block_stats[camera] = BlockStats.join([*before, stats])

    def calibrate(
        self, *, alerts_per_hour: float, confidence: float = 0.95, rules: Rules = RULES
    ) -> Calibration:
        """Find thresholds that promise at most `alerts_per_hour` false events per camera-hour."""
        made = calibrate_cameras(
            self.clips,
            model_sha256=self.detector.sha256,
            alerts_per_hour=alerts_per_hour,
            confidence=confidence,
            rules=rules,
        )
        return replace(made, block_stats=self.block_stats)


def find_calibration(model: Path, sha256: str | None = None) -> Calibration | None:
    """The calibration beside a model, if it exists and belongs to this model.

    `sha256` is the digest of the loaded model; without it, the model file is read.
    """
    path = calibration_path(model)
    if not path.exists():
        return None
    made = read_calibration(path)
    if made.model_sha256 != (sha256 or modelfile.sha256(model)):
        logger.warning("%s belongs to another model and is ignored; calibrate again", path)
        return None
    return made


def require_calibration(
    model: Path, sha256: str | None = None, *, otherwise: str = ""
) -> Calibration:
    """The calibration beside a model, or an error that explains how to create one."""
    made = find_calibration(model, sha256)
    if made is None:
        raise StepvadError(
            f"{calibration_path(model)}: expected a calibration next to the model, got none",
            hint="create one with: stepvad calibrate MODEL NORMAL_POSES --alerts-per-hour 0.5"
            + otherwise,
        )
    return made


def rules_for(
    model: Path,
    sha256: str | None = None,
    *,
    threshold: float | None = None,
    camera: str | None = None,
) -> tuple[Rules, Threshold | None]:
    """The rules for events, and the promise of their threshold.

    `threshold` overrides the calibration's and carries no promise.
    """
    made = find_calibration(model, sha256)
    if camera is not None and (made is None or camera not in made.counted):
        known = "no calibration" if made is None else ", ".join(made.counted)
        raise StepvadError(
            f"camera: expected a camera of the calibration, got {camera!r}; it has {known}",
            hint="cameras are the directories that calibrate was given",
        )
    if threshold is not None:
        return replace(RULES if made is None else made.rules, threshold=threshold), None
    made = require_calibration(model, sha256, otherwise=", or choose a --threshold")
    rules = made.rules if camera is None else made.rules_of(camera)
    return rules, made.threshold if camera is None else made.cameras.get(camera, made.threshold)


SUFFIX = ".calibration.json"
MAX_BYTES = 1 << 27
"""Largest file; a week of one camera takes about 3 MB."""
MAX_CELLS = 20_000_000
"""Largest number of event counts: 100 levels of 16,000 hours."""
MAKE_ONE = "create one with: stepvad calibrate MODEL NORMAL_POSES"


def calibration_path(model: Path) -> Path:
    """Path of a model's calibration file."""
    return model.with_suffix(SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFile:
    """A calibration as it is written."""

    schema: Literal[1] = 1
    model_sha256: str
    rules: Rules
    threshold: Threshold
    cameras: dict[str, Threshold]
    levels: Annotated[tuple[Positive, ...], Meta(min_length=2, max_length=10_000)]
    blocks: dict[str, tuple[tuple[Positive, tuple[Count, ...]], ...]]
    """Hours of each block, and its events from the lowest level to the last non-zero one."""
    marked: dict[str, Marked]
    block_stats: dict[str, tuple[tuple[Number, ...], ...]]
    statistics: tuple[str, ...]
    """Names of the columns of `block_stats`."""
    rates: dict[str, tuple[Annotated[float, Meta(gt=0, lt=MAX_FPS)], ...]]


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration atomically."""
    facts = CalibrationFile(
        model_sha256=calibration.model_sha256,
        rules=calibration.rules,
        threshold=calibration.threshold,
        cameras={**calibration.cameras},
        levels=tuple(next(iter(calibration.counted.values())).levels.tolist()),
        blocks={
            name: tuple(
                (float(hours), tuple(np.trim_zeros(events, "b").tolist()))
                for hours, events in zip(counted.hours, counted.events, strict=True)
            )
            for name, counted in calibration.counted.items()
        },
        marked={**calibration.marked},
        # six digits are enough to compare blocks, and a third of the file
        block_stats={
            name: tuple(tuple(float(f"{one:.6g}") for one in row) for row in stats.values.tolist())
            for name, stats in calibration.block_stats.items()
        },
        statistics=next((stats.names for stats in calibration.block_stats.values()), ()),
        rates={**calibration.rates},
    )
    with replacing(path) as temporary:
        text = json.dumps(to_plain(facts), indent=1, ensure_ascii=False)
        temporary.write_text(text, encoding="utf-8")


def read_calibration(path: Path) -> Calibration:
    """Read a calibration."""
    try:
        found = decode(CalibrationFile, read_bounded(path, most=MAX_BYTES), "calibration")
        return _calibration(found)
    except OSError as error:
        raise DataError(
            f"{path}: expected a calibration, got: {os_reason(error)}", hint=MAKE_ONE
        ) from error
    except NewerVersionError as error:
        raise error.located(str(path)) from error
    except (ValueError, StepvadError) as error:
        reason = error.problem if isinstance(error, StepvadError) else str(error)
        raise DataError(
            f"{path}: expected a calibration, got something else ({reason[:200]})", hint=MAKE_ONE
        ) from error


def _calibration(found: CalibrationFile) -> Calibration:
    levels = np.asarray(found.levels, dtype=np.float64)
    if not (np.diff(levels) > 0).all():
        raise ValueError("levels that are not ascending")
    # before any array is made: a small file could ask for a large one
    n_blocks = sum(map(len, found.blocks.values()))
    if len(levels) * n_blocks > MAX_CELLS:
        raise ValueError(f"{len(levels):,} levels in {n_blocks:,} blocks, more than {MAX_CELLS:,}")
    counted, block_stats = {}, {}
    for name, blocks in found.blocks.items():
        if not blocks:
            raise ValueError("no blocks")
        events = np.zeros((len(blocks), len(levels)), dtype=np.int64)
        for row, (_, some) in zip(events, blocks, strict=True):
            row[: len(some)] = some
        hours = np.array([hours for hours, _ in blocks], np.float64)
        counted[name] = Counted(levels, events, hours)
    n_names = len(found.statistics)
    for name, rows in found.block_stats.items():
        if n_names * len(rows) > MAX_CELLS:
            raise ValueError(f"{n_names:,} numbers of {len(rows):,} blocks")
        values = np.array(rows, np.float64).reshape(len(rows), n_names)
        block_stats[name] = BlockStats(found.statistics, values)
    return Calibration(
        model_sha256=found.model_sha256,
        rules=found.rules,
        threshold=found.threshold,
        cameras=found.cameras,
        counted=counted,
        marked=found.marked,
        block_stats=block_stats,
        rates=found.rates,
    )
