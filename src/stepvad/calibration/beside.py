"""The calibration beside a model, and the event rules it implies."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from stepvad.calibration import RULES, Calibration, Threshold, file
from stepvad.errors import StepvadError
from stepvad.incidents.events import Rules
from stepvad.model import modelfile

logger = logging.getLogger(__name__)


def find(model: Path, sha256: str | None = None) -> Calibration | None:
    """The calibration beside a model, if it exists and belongs to this model.

    `sha256` is the digest of the loaded model; without it, the model file is read.
    """
    path = file.beside(model)
    if not path.exists():
        return None
    made = file.read(path)
    if made.model_sha256 != (sha256 or modelfile.sha256(model)):
        logger.warning("%s belongs to another model and is ignored; calibrate again", path)
        return None
    return made


def needed(model: Path, sha256: str | None = None, *, otherwise: str = "") -> Calibration:
    """The calibration beside a model, or an error that explains how to create one."""
    made = find(model, sha256)
    if made is None:
        raise StepvadError(
            f"{file.beside(model)}: expected a calibration next to the model, got none",
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
    made = find(model, sha256)
    if camera is not None and (made is None or camera not in made.counted):
        known = "no calibration" if made is None else ", ".join(made.counted)
        raise StepvadError(
            f"camera: expected a camera of the calibration, got {camera!r}; it has {known}",
            hint="cameras are the directories that calibrate was given",
        )
    if threshold is not None:
        return replace(RULES if made is None else made.rules, threshold=threshold), None
    made = needed(model, sha256, otherwise=", or choose a --threshold")
    rules = made.rules if camera is None else made.rules_of(camera)
    return rules, made.threshold if camera is None else made.cameras.get(camera, made.threshold)
