"""The calibration beside a model, for the commands; warnings go to stderr."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.terminal import notes_of

if TYPE_CHECKING:
    from stepvad.calibration import Calibration, Threshold
    from stepvad.incidents.events import Rules

CalibratedCameraOption = Annotated[
    str | None, typer.Option(help="Camera of the clip, if the calibration has several.")
]


def calibration_of(model: Path, sha256: str | None = None) -> Calibration | None:
    """The calibration beside a model, if it exists and belongs to this model."""
    from stepvad.calibration import beside

    with notes_of("stepvad.calibration"):
        return beside.find(model, sha256)


def rules_for(
    model: Path, threshold: float | None, camera: str | None, sha256: str | None = None
) -> tuple[Rules, Threshold | None]:
    """The rules for events, and the promise of their threshold."""
    from stepvad.calibration import beside

    with notes_of("stepvad.calibration"):
        return beside.rules_for(model, sha256, threshold=threshold, camera=camera)


def camera_of(path: Path) -> str:
    """The camera of a path's footage, named after the file or directory."""
    return path.resolve().stem if path.is_file() else path.resolve().name
