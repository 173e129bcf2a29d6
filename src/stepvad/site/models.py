"""The models of a site, each loaded once with its calibration, and the limits of its cameras."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from stepvad.detector import Detector
from stepvad.errors import ConfigError, DataError
from stepvad.events.calibration import RULES, Calibration, calibration_path, read_calibration
from stepvad.events.camera import CameraProfile
from stepvad.events.ledger import LedgerEntry, days_since_as_strange, peaks_of
from stepvad.events.record import Record
from stepvad.events.rules import Rules, WatchHours
from stepvad.events.threshold import Threshold, duration, limit_of, over_budget
from stepvad.poses import Clip
from stepvad.site.learning.versions import Learned, learned_beside
from stepvad.site.settings.sections import CameraSettings
from stepvad.stream import Excuse

NOT_LEARNED = "Not learned here yet: people are shown and recorded, nobody is judged."


@dataclass(frozen=True, slots=True)
class Limit:
    """The score from which on a camera alerts, what it rests on, and when and where it counts."""

    camera: CameraSettings
    rules: Rules
    words: str
    """Alerts and budget, for an operator."""
    excuse: Excuse | None = None
    """Lowers the scores of motion that somebody marked as normal."""

    def applied_to(self, profile: CameraProfile) -> CameraProfile:
        """The profile of the camera with this limit, and with the zones and hours in its settings.

        The rate stays: that of a connection never changes.
        """
        camera = self.camera
        return replace(
            profile,
            rules=self.rules,
            excuse=self.excuse,
            zones=camera.zones,
            went_down=camera.went_down,
            hours=None if camera.hours is None else WatchHours.parse(camera.hours),
            zone_hours={zone: WatchHours.parse(h) for zone, h in camera.zone_hours.items()},
        )


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model and its calibration, if there is one."""

    path: Path
    detector: Detector
    sha256: str
    calibration: Calibration | None
    learned: Learned | None = None
    """Facts of a model that a site has learned."""

    @property
    def name(self) -> str:
        """The model's name in events."""
        return self.path.stem

    def rules_of(self, camera: CameraSettings) -> Rules:
        """The event rules of a camera."""
        return self.rules(camera.name, camera.threshold)

    def rules(self, camera: str, threshold: float | None) -> Rules:
        """The event rules of a camera, with its own threshold or else the calibrated one."""
        # the rules of the calibration, with the threshold of the settings if there is one
        rules = RULES if self.calibration is None else self.calibration.rules_of(camera)
        if threshold is not None:
            return replace(rules, threshold=threshold)
        if self.calibration is None:
            raise ConfigError(
                f"camera {camera}: expected a threshold or a calibration next to {self.path}, "
                "got neither",
                hint=f"stepvad calibrate {self.path} NORMAL_POSES, or set threshold",
            )
        return rules

    def limit(self, camera: CameraSettings) -> Limit:
        """The limit of a camera, from its settings or from the calibration, and its exceptions."""
        rules, known, excuse = self.rules_of(camera), self.calibration, None
        if known is not None:
            excuse = known.excuse(self.detector, camera.name, rules.calm)
        if camera.threshold is not None or known is None:
            words = "set by hand in the settings"
        elif (own := known.cameras.get(camera.name)) is None:
            words = f"{known.threshold.words}, of other cameras"
        elif self.learned is None:
            words = own.words
        else:
            words = budget_words(own, known.ledgers[camera.name])
        return Limit(camera, rules, words, excuse)

    def no_limit(self, camera: CameraSettings) -> str:
        """The reason why a learned model has no limit for a camera; empty if it has one.

        Footage of other cameras says nothing about it.
        """
        known = self.calibration
        if (
            self.learned is None
            or known is None
            or camera.threshold
            or camera.name in known.cameras
        ):
            return ""
        ledger = known.ledgers.get(camera.name, ())
        if any(one.highest for one in ledger):  # it waits for a strict one
            try:
                limit_of(ledger, 24 * known.threshold.alerts_per_hour, strict=True)
            except DataError as error:
                return error.problem
        return NOT_LEARNED

    def calibration_note(self, camera: str, rate: float, threshold: float | None) -> str | None:
        """The reason why a calibrated threshold does not hold at a camera's frame rate, if so."""
        if self.calibration is None or threshold is not None:
            return None
        return self.calibration.rate_note(self.detector.config, rate, camera)


@dataclass(frozen=True, slots=True)
class Models:
    """Models by path, shared between cameras."""

    _loaded: dict[Path, Loaded] = field(default_factory=dict)

    def load(self, path: Path) -> Loaded:
        """Load a model for live scoring, on one thread; cached by path."""
        # one model for all cameras that name the same file, by whatever path
        path = path.resolve()
        if path not in self._loaded:
            if not path.exists():
                raise ConfigError(
                    f"{path}: expected the model of the site, got no file",
                    hint="record normal footage with stepvad extract, then: stepvad fit POSES -o "
                    f"{path.name}",
                )
            detector = Detector.load(path, threads=1)
            sha256 = detector.sha256
            found = _calibration(path, sha256)
            self._loaded[path] = Loaded(path, detector, sha256, found, learned_beside(path))
        return self._loaded[path]

    def loaded(self) -> list[Loaded]:
        """The models loaded so far."""
        return [*self._loaded.values()]

    def strangest(self, record: Record, clip: Clip) -> str | None:
        """The days for which a camera had no event as strange as this one with its poses, in words.

        None for less than a day, and for models that others made: their footage has no dates.
        """
        for model in self.loaded():
            if model.sha256 == record.model_sha256 and model.learned and model.calibration:
                entries = model.calibration.ledgers.get(record.camera, ())
                windows = model.detector.score(clip).windows
                peaks = peaks_of(windows, clip.rate(), model.calibration.rules)
                peak = min(record.top_score, peaks[0].limit if peaks else 0.0)
                days = int(days_since_as_strange(entries, peak, record.start_time))
                if days:
                    return f"the strangest of the last {f'{days} days' if days > 1 else 'day'}"
        return None

    def calibrated(self, path: Path, calibration: Calibration) -> None:
        """Use another calibration of a loaded model from now on."""
        path = path.resolve()
        self._loaded[path] = replace(self._loaded[path], calibration=calibration)


def budget_words(threshold: Threshold, entries: Sequence[LedgerEntry]) -> str:
    """The alerts of a camera against its budget, as its operator reads them."""
    per_day = 24 * threshold.alerts_per_hour
    if words := over_budget(entries, per_day, midnight()):
        return words
    if threshold.how == "counted":
        return f"{threshold.words}."
    if threshold.is_early:
        return "Learning what is usual: expect two or three alerts more."
    n = sum(len(one.alerts) for one in entries)
    alerts = f"{n or 'No'} alert{'' if n == 1 else 's'}"
    return f"{alerts} in {duration(threshold.hours)}, budget {per_day * threshold.hours / 24:.2g}."


def midnight() -> float:
    """The beginning of this day, by the clock on the wall."""
    return datetime.now().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


def _calibration(model: Path, sha256: str) -> Calibration | None:
    path = calibration_path(model)
    if not path.exists():
        return None
    found = read_calibration(path)
    if found.model_sha256 != sha256:
        raise ConfigError(
            f"{path}: expected a calibration of {model.name}, got one of another model",
            hint=f"stepvad calibrate {model} NORMAL_POSES",
        )
    return found
