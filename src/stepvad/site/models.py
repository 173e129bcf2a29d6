"""The models of a site, each loaded once with its calibration, and the limits of its cameras."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from stepvad.detector import Detector
from stepvad.errors import ConfigError
from stepvad.events.calibration import RULES, Calibration, calibration_path, read_calibration
from stepvad.events.camera import CameraProfile
from stepvad.events.rules import Rules, WatchHours
from stepvad.site.settings.sections import CameraSettings


@dataclass(frozen=True, slots=True)
class Limit:
    """The score from which on a camera alerts, what it rests on, and when and where it counts."""

    camera: CameraSettings
    rules: Rules
    words: str
    """Promise of the threshold, for an operator."""
    is_provisional: bool

    def applied_to(self, profile: CameraProfile) -> CameraProfile:
        """The profile of the camera with this limit, and with the zones and hours in its settings.

        The rate stays: that of a connection never changes.
        """
        camera = self.camera
        return replace(
            profile,
            rules=self.rules,
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
        """The limit of a camera, from its settings or from the calibration."""
        rules = self.rules_of(camera)
        if camera.threshold is not None or self.calibration is None:
            return Limit(camera, rules, "set by hand in the settings", False)
        own = self.calibration.cameras.get(camera.name, self.calibration.threshold)
        return Limit(camera, rules, own.words, False)

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
            self._loaded[path] = Loaded(path, detector, sha256, _calibration(path, sha256))
        return self._loaded[path]

    def loaded(self) -> list[Loaded]:
        """The models loaded so far."""
        return [*self._loaded.values()]

    def reload(self, path: Path) -> Loaded:
        """Read the calibration of a loaded model again."""
        model = self.load(path)
        found = _calibration(model.path, model.sha256)
        self._loaded[model.path] = replace(model, calibration=found)
        return self._loaded[model.path]

    def calibrated(self, path: Path, calibration: Calibration) -> None:
        """Use another calibration of a loaded model from now on."""
        path = path.resolve()
        self._loaded[path] = replace(self._loaded[path], calibration=calibration)


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
