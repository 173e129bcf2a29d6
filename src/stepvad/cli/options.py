"""Options shared by several commands, and their parsers."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from stepvad.cli.engine import RuntimeName
from stepvad.config import Config
from stepvad.errors import ConfigError, StepvadError

SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="TOML file with further settings: fields of `Config`."),
]
PlacementName = Annotated[
    Literal["latest", "center", "backtrack"], typer.Option(help="As in `evaluate`.")
]
Smoothed = Annotated[bool, typer.Option(help="Apply the data set's smoothing.")]
FrameNames = Annotated[
    Literal["all", "covered", "one-person"], typer.Option(help="Frames to measure.")
]
SplitName = Annotated[
    Literal["full", "hr", "st", "ub", "validation"],
    typer.Option(
        help="`hr`: human-related anomalies only; `st`, `ub`: the same on MSAD; "
        "`validation`: the clips for tuning."
    ),
]
FpsOption = Annotated[
    float | None,
    typer.Option(
        min=0.1, max=1000, help="Frames per second; required if the pose files do not state it."
    ),
]
FramePart = Annotated[
    str, typer.Option(metavar="A:B", help="Only frames A up to B; `:500` is the first 500.")
]
Components = Annotated[int, typer.Option("--K", min=2, help="Principal components to keep.")]
DataSeed = Annotated[int, typer.Option(min=0, help="The same seed gives the same files.")]
Device = Annotated[str, typer.Option(help="Torch device that trains: `cpu`, `cuda` or `cuda:1`.")]
PrecisionName = Annotated[
    Literal["auto", "float32", "bfloat16"],
    typer.Option(
        help="Precision of the large products of the training; `auto` is bfloat16 where it is fast."
    ),
]
ModelOutput = Annotated[Path, typer.Option("-o", "--output", help="The model file to write.")]
TableFile = Annotated[
    Path | None, typer.Option("--table", help="Table file: .csv, otherwise Markdown.")
]
ContactSheet = Annotated[Path | None, typer.Option(help="Draw sample motions to this .png file.")]
Width = Annotated[int, typer.Option(help="Hidden units of the network.")]
MaxSteps = Annotated[int, typer.Option(help="Training steps.")]
LearningRate = Annotated[float, typer.Option(help="Peak learning rate.")]
Seeds = Annotated[int, typer.Option(min=1, help="Fits per trained method.")]
FitJobsOption = Annotated[int, typer.Option(min=1, help="Fits to run in parallel.")]
ExecutorName = Annotated[
    Literal["processes", "ray"],
    typer.Option(help="Where to run: local processes, or a Ray cluster."),
]


@dataclass(frozen=True, slots=True)
class FitOptions:
    """Size and training of a network fitted for a benchmark."""

    width: Width = 256
    max_steps: MaxSteps = 500
    learning_rate: LearningRate = 1e-3

    def applied(self, config: Config) -> Config:
        """Settings of a model, overridden by these options."""
        return replace(
            config, width=self.width, max_steps=self.max_steps, learning_rate=self.learning_rate
        )


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """How window scores become frame scores, and which frames are measured."""

    placement: PlacementName = "latest"
    smoothed: Smoothed = False
    frames: FrameNames = "all"


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Number of fits, and where they run."""

    seeds: Seeds = 5
    jobs: FitJobsOption = 1
    executor: ExecutorName = "processes"
    runtime: RuntimeName = "auto"


def configured(base: Config, file: Path | None, **options: Any) -> Config:
    """Settings overridden by those in a TOML file, and then by the options that are given.

    A number of epochs lifts a limit on the steps.
    """
    stated = {} if file is None else _read_settings(file)
    given = {name: value for name, value in options.items() if value is not None}
    if "epochs" in stated | given:
        base = replace(base, max_steps=None)
    try:
        base = replace(base, **stated)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.problem}", hint=error.hint) from None
    return replace(base, **given)


def _read_settings(file: Path) -> dict[str, Any]:
    """The settings in a TOML file, whose keys are fields of `Config`."""
    try:
        stated = tomllib.loads(file.read_text("utf-8"))
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigError(
            f"{file}: expected settings in TOML, got: {error}",
            hint="one setting a line, as learning_rate = 5e-4",
        ) from None
    known = {one.name for one in fields(Config)} - {"view", "views"}
    for name in stated:
        if name not in known:
            raise ConfigError(
                f"{file}: {name}: expected a setting of a model, got an unknown name",
                hint=f"the settings are {', '.join(sorted(known, key=str.lower))}",
            )
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in stated.items()
    }


def frame_range(text: str, n_frames: int | None = None) -> tuple[int, int | None]:
    """Parse `A:B` as the first frame and the one after the last; None if the end is unknown."""
    found = re.fullmatch("([0-9]*):([0-9]*)", text)
    first, end = (int(found[1] or 0), int(found[2]) if found[2] else n_frames) if found else (0, 0)
    if end is not None and not first < end <= (end if n_frames is None else n_frames):
        most = "" if n_frames is None else f", up to {n_frames}"
        raise StepvadError(
            f"--frames: expected A:B with A below B{most}, got {text}",
            hint="the first 500 frames are :500, the rest 500:",
        )
    return first, end


def numbers(option: str, text: str) -> tuple[float, ...]:
    """Parse positive numbers separated by commas."""
    try:
        found = tuple(map(float, text.split(",")))
    except ValueError:
        found = (0.0,)
    if not all(0 < number < float("inf") for number in found):
        raise StepvadError(
            f"{option}: expected numbers above 0, got {text}", hint="separate them with commas"
        )
    return found


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Parse positive integers separated by commas."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise StepvadError(
            f"{option}: expected whole numbers of at least 1, got {text}",
            hint="separate them with commas, without spaces",
        )
    return tuple(map(int, words))
