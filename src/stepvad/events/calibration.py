"""Limits of cameras from footage: scored, calibrated, and kept in a file beside the model."""

from __future__ import annotations

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

from stepvad.codec import NewerVersionError, Number, decode, encode
from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import DataError, Report, StepvadError, os_reason, silent
from stepvad.events import drift
from stepvad.events.drift import BlockStats
from stepvad.events.exceptions import Excuse, MotionException
from stepvad.events.ledger import LedgerEntry, TimeSpan
from stepvad.events.rules import Rules
from stepvad.events.threshold import Threshold, limit_of
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
    """Limits of cameras, each from its own ledger, and one from all for use offline."""

    model_sha256: str
    """Digest of the model that gave the scores."""
    rules: Rules
    """Rules for events, with the threshold for all cameras."""
    threshold: Threshold
    cameras: Mapping[str, Threshold] = field(default_factory=dict)
    """Thresholds of cameras by their own footage."""
    ledgers: Mapping[str, tuple[LedgerEntry, ...]] = field(default_factory=dict)
    """Footage of each camera with the peaks of its events."""
    exceptions: tuple[MotionException, ...] = ()
    """Motion that people marked as normal."""
    block_stats: Mapping[str, BlockStats] = field(default_factory=dict)
    """Statistics of each camera's footage, to detect drift."""
    rates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Frames per second of each camera's footage, ascending; empty if it states none."""

    @classmethod
    def from_ledgers(
        cls,
        ledgers: Mapping[str, Sequence[LedgerEntry]],
        *,
        model_sha256: str,
        alerts_per_day: float,
        strict: bool = False,
        rules: Rules = RULES,
    ) -> Calibration:
        """The limits for a budget of each camera, by the day watched.

        A camera whose footage is empty or, strict, too little has none of its own.
        """
        entries = list(chain.from_iterable(ledgers.values()))
        threshold = limit_of(entries, alerts_per_day, strict=strict)
        own: dict[str, Threshold] = {}
        for camera, some in ledgers.items():
            with suppress(DataError):
                own[camera] = limit_of(some, alerts_per_day, strict=strict)
        return cls(
            model_sha256=model_sha256,
            rules=replace(rules, threshold=threshold.value),
            threshold=threshold,
            cameras=own,
            ledgers={camera: tuple(some) for camera, some in ledgers.items()},
        )

    def rules_of(self, camera: str) -> Rules:
        """Rules for events of a camera, with its own threshold or else the one for all."""
        return replace(self.rules, threshold=self.cameras.get(camera, self.threshold).value)

    def excuse(self, detector: Detector, camera: str | None, calm: float = 0.0) -> Excuse:
        """What lowers the scores of a camera's windows above the `calm` level."""
        return Excuse(detector, [one for one in self.exceptions if one.camera == camera], calm)

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
            f"has {fps:g}: it does not hold; calibrate on footage of {fps:g} per second, "
            "or fit with --clock"
        )


def calibrate(
    detector: Detector,
    clips: Iterable[Clip],
    *,
    alerts_per_hour: float,
    strict: bool = False,
    rules: Rules = RULES,
    fps: float | None = None,
) -> Threshold:
    """The threshold that about `alerts_per_hour` events of normal footage exceed.

    With `strict`, at most so many, with 95 % confidence, counted in the footage. `clips` must show
    normal behaviour, and the detector must not be fitted on them. `rules` define events; their own
    threshold is ignored. `fps` is the frame rate of clips without a rate.

    Raises:
        DataError: If nobody is in the footage, or it is too little to be strict; says how much more
            is needed.

    Examples:
        >>> calibrate(detector, clips, alerts_per_hour=0.04, strict=True)
        Traceback (most recent call last):
        stepvad.errors.DataError: strict: not before 3.1 days without an alert; ...
    """
    footage = ScoredFootage(rules)
    footage.score(detector, "", clips, fps=fps)
    return limit_of(footage.ledgers.get("", []), 24 * alerts_per_hour, strict=strict)


@dataclass(frozen=True, slots=True)
class ScoredFootage:
    """The ledger of each camera from its scored clips, and their block statistics."""

    rules: Rules = RULES
    exceptions: Sequence[MotionException] = ()
    ledgers: dict[str, list[LedgerEntry]] = field(default_factory=dict)
    block_stats: dict[str, list[BlockStats]] = field(default_factory=dict)
    rates: dict[str, set[float]] = field(default_factory=dict)

    def score(
        self,
        detector: Detector,
        camera: str,
        clips: Iterable[Clip],
        *,
        begin: float = 0.0,
        alerts: Sequence[TimeSpan] = (),
        left_out: Sequence[TimeSpan] = (),
        fps: float | None = None,
        report: Report = silent,
    ) -> None:
        """Score more footage of a camera, each clip an entry; `fps` is for clips without a rate.

        The detector must not have seen them: `Detector.without` the fold of the clips has not.
        Spans of alerts are by the clock of `begin`, as in `LedgerEntry.from_windows`.
        """
        for clip in (clip.with_rate(fps) for clip in clips):
            scores, stats = drift.score_with_stats(detector, clip, clip.rate(), report=report)
            # a mark does not excuse its own file: footage counts as what comes next will
            end = begin + clip.n_frames / clip.rate()
            of_camera = (one for one in self.exceptions if one.camera == camera)
            others = [one for one in of_camera if not begin <= one.at <= end]
            entry = LedgerEntry.from_windows(
                Excuse(detector, others).in_clip(clip, scores.windows),
                clip.rate(),
                self.rules,
                watched_s=watched_s(clip),
                begin=begin,
                alerts=alerts,
                left_out=left_out,
            )
            self.ledgers.setdefault(camera, []).append(entry)
            self.block_stats.setdefault(camera, []).append(stats)
            self.rates.setdefault(camera, set()).add(clip.rate())

    def join(self, others: Iterable[ScoredFootage]) -> None:
        """Add footage that was scored elsewhere, by the same detector."""
        for other in others:
            for camera, entries in other.ledgers.items():
                self.ledgers.setdefault(camera, []).extend(entries)
                self.block_stats.setdefault(camera, []).extend(other.block_stats[camera])
                self.rates.setdefault(camera, set()).update(other.rates[camera])

    def calibrate(
        self, model_sha256: str, *, alerts_per_day: float, strict: bool = False
    ) -> Calibration:
        """The limits for a budget of each camera, and all that is kept with them."""
        made = Calibration.from_ledgers(
            self.ledgers,
            model_sha256=model_sha256,
            alerts_per_day=alerts_per_day,
            strict=strict,
            rules=self.rules,
        )
        stats = {camera: BlockStats.join(parts) for camera, parts in self.block_stats.items()}
        rates = {camera: tuple(sorted(some)) for camera, some in self.rates.items()}
        exceptions = tuple(self.exceptions)
        return replace(made, block_stats=stats, rates=rates, exceptions=exceptions)


def watched_s(clip: Clip) -> float:
    """Seconds of a clip in which people could have been seen."""
    return (clip.n_frames - clip.first_frame) / clip.rate()


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
    """The rules for events, and the budget of their threshold.

    `threshold` overrides the calibration's and has no budget.
    """
    made = find_calibration(model, sha256)
    if camera is not None and (made is None or camera not in made.ledgers):
        known = "no calibration" if made is None else ", ".join(made.ledgers)
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
"""Largest file; a week of one camera takes about 1 MB."""
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
    ledgers: dict[str, tuple[LedgerEntry, ...]]
    exceptions: tuple[MotionException, ...] = ()
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
        ledgers={
            camera: tuple(
                replace(one, quiet=_six_digits(one.quiet), alerts=_six_digits(one.alerts))
                for one in entries
            )
            for camera, entries in calibration.ledgers.items()
        },
        exceptions=calibration.exceptions,
        block_stats={
            camera: tuple(map(_six_digits, stats.values.tolist()))
            for camera, stats in calibration.block_stats.items()
        },
        statistics=next((stats.names for stats in calibration.block_stats.values()), ()),
        rates={**calibration.rates},
    )
    with replacing(path) as temporary:
        temporary.write_bytes(encode(facts))


def _six_digits(numbers: Sequence[float]) -> tuple[float, ...]:
    """Numbers rounded: enough to compare them, and a third of the file."""
    return tuple(float(f"{one:.6g}") for one in numbers)


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
    n_names = len(found.statistics)
    return Calibration(
        model_sha256=found.model_sha256,
        rules=found.rules,
        threshold=found.threshold,
        cameras=found.cameras,
        ledgers=found.ledgers,
        exceptions=found.exceptions,
        block_stats={
            camera: BlockStats(
                found.statistics, np.array(rows, np.float64).reshape(len(rows), n_names)
            )
            for camera, rows in found.block_stats.items()
        },
        rates=found.rates,
    )
