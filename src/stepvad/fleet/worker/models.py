"""The model and event rules of each camera."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from stepvad.events.camera import CameraProfile
from stepvad.fleet.settings import ModelSettings
from stepvad.site.models import Loaded, Models
from stepvad.windows.live import check_online

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FleetModels:
    """All models of a worker, loaded at startup."""

    settings: Sequence[ModelSettings]
    _loaded: list[Loaded] = field(default_factory=list)

    @classmethod
    def load(cls, settings: Sequence[ModelSettings]) -> FleetModels:
        """Load every model and check that each has event rules and can run online."""
        models = Models()
        loaded = [models.load(one.model) for one in settings]
        for one, model in zip(settings, loaded, strict=True):
            model.rules(one.cameras[0], one.threshold)
            check_online(model.detector.config)
        return cls(settings, loaded)

    def profile(self, camera: str, rate: float) -> CameraProfile | None:
        """The profile for `site/camera`; None if no model matches it."""
        for one, model in zip(self.settings, self._loaded, strict=True):
            if one.has(camera):
                note = model.calibration_note(camera, rate, one.threshold)
                if note is not None:
                    logger.warning("camera %s: %s", camera, note)
                return CameraProfile(
                    camera=camera,
                    rate=rate,
                    rules=model.rules(camera, one.threshold),
                    detector=model.detector,
                    model_id=model.name,
                    model_sha256=model.sha256,
                    zones={},
                )
        return None
