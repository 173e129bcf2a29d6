"""The calibration beside a model, as the verbs use it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.poses import FormatName, read_poses
from stepvad.cli.terminal import say
from stepvad.errors import StepvadError
from stepvad.progress import Report

if TYPE_CHECKING:
    from stepvad.calibration import Calibration, Scored, Threshold
    from stepvad.calibration.drift import BlockStats
    from stepvad.detector import Detector
    from stepvad.incidents.events import Rules

Camera = Annotated[
    str | None, typer.Option(help="The camera of the clip, if the calibration has several.")
]


def calibration_of(model: Path, sha256: str | None = None) -> Calibration | None:
    """The calibration beside a model, if there is one and it is this model's.

    `sha256` is the digest of a model that is loaded; else the file is read.
    """
    from stepvad.calibration import file
    from stepvad.model import modelfile

    path = file.beside(model)
    if not path.exists():
        return None
    made = file.read(path)
    if made.model_sha256 != (sha256 or modelfile.sha256(model)):
        say(f"warning: {path} is of another model and left alone; calibrate again")
        return None
    return made


def calibration_needed(model: Path, otherwise: str = "", sha256: str | None = None) -> Calibration:
    """The calibration beside a model, or an error that says how to make one."""
    from stepvad.calibration import file

    made = calibration_of(model, sha256)
    if made is None:
        raise StepvadError(
            f"{file.beside(model)}: expected a calibration beside the model, got none",
            hint="make one with: stepvad calibrate MODEL NORMAL_POSES --alerts-per-hour 0.5"
            + otherwise,
        )
    return made


def rules_for(
    model: Path, threshold: float | None, camera: str | None, sha256: str | None = None
) -> tuple[Rules, Threshold | None]:
    """How events are made, and what their threshold promises."""
    from stepvad.calibration import RULES

    made = calibration_of(model, sha256)
    if camera is not None and (made is None or camera not in made.counted):
        known = "no calibration" if made is None else ", ".join(made.counted)
        raise StepvadError(
            f"--camera: expected a camera of the calibration, got {camera!r}; it has {known}",
            hint="cameras are the directories that calibrate was given",
        )
    if threshold is not None:
        return replace(RULES if made is None else made.rules, threshold=threshold), None
    made = calibration_needed(model, ", or choose a --threshold", sha256)
    rules = made.rules if camera is None else made.rules_of(camera)
    return rules, made.threshold if camera is None else made.cameras.get(camera, made.threshold)


def camera_of(path: Path) -> str:
    """The camera whose footage a path holds: its name."""
    return path.resolve().stem if path.is_file() else path.resolve().name


def look_at(
    detector: Detector, path: Path, format: FormatName, fps: float | None, report: Report
) -> tuple[list[Scored], BlockStats]:
    """The scored clips of a path, and what they look like."""
    from stepvad.calibration import Scored
    from stepvad.calibration.drift import BlockStats, look

    clips: list[Scored] = []
    looks: list[BlockStats] = []
    for clip in read_poses([path], format, report, fps=fps):
        rate = clip.rate(fps)
        scores, seen = look(detector, clip, rate, report=report)
        clips.append(Scored.of(clip, scores, rate))
        looks.append(seen)
    return clips, BlockStats.join(looks)
