"""The calibration beside a model, for the commands; warnings go to stderr."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.terminal import notes_of, say

if TYPE_CHECKING:
    from stepvad.calibration import Calibration, Threshold
    from stepvad.config import Config
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


def warn_of_rates(
    model: Path, config: Config, rates: Iterable[float], camera: str | None = None
) -> None:
    """Warn of footage whose frame rate is not that of the calibration beside a model."""
    made = calibration_of(model)
    notes = (made and made.rate_note(config, rate, camera) for rate in sorted(rates))
    for note in filter(None, notes):
        say(f"warning: {note}")


def camera_of(path: Path) -> str:
    """The camera of a path's footage, named after the file or directory."""
    return path.resolve().stem if path.is_file() else path.resolve().name
