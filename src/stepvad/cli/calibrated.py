"""The calibration beside a model, as the verbs use it; a warning goes to stderr."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.terminal import notes_of

if TYPE_CHECKING:
    from stepvad.calibration import Calibration, Threshold
    from stepvad.incidents.events import Rules

Camera = Annotated[
    str | None, typer.Option(help="The camera of the clip, if the calibration has several.")
]


def calibration_of(model: Path, sha256: str | None = None) -> Calibration | None:
    """The calibration beside a model, if there is one and it is this model's."""
    from stepvad.calibration import beside

    with notes_of("stepvad.calibration"):
        return beside.find(model, sha256)


def rules_for(
    model: Path, threshold: float | None, camera: str | None, sha256: str | None = None
) -> tuple[Rules, Threshold | None]:
    """How events are made, and what their threshold promises."""
    from stepvad.calibration import beside

    with notes_of("stepvad.calibration"):
        return beside.rules_for(model, sha256, threshold=threshold, camera=camera)


def camera_of(path: Path) -> str:
    """The camera whose footage a path holds: its name."""
    return path.resolve().stem if path.is_file() else path.resolve().name
