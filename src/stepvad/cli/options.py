"""Options of several commands, each defined once, and what they stand for."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import typer

from stepvad.cli.terminal import notes_of, say
from stepvad.config import Config, Runtime
from stepvad.errors import ConfigError, Report, StepvadError
from stepvad.formats import FORMATS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from stepvad.detector import Detector
    from stepvad.evaluation.baselines import Fitted
    from stepvad.events.calibration import Calibration
    from stepvad.events.rules import Rules
    from stepvad.events.threshold import Threshold
    from stepvad.poses import Clip

if TYPE_CHECKING:
    PoseFormat = str
else:
    PoseFormat = Literal["auto", *FORMATS]
FormatOption = Annotated[PoseFormat, typer.Option("--format", help="Format of the pose files.")]
PosesArgument = Annotated[
    list[Path], typer.Argument(help="Pose files, or directories of pose files.")
]
PoseFile = Annotated[Path, typer.Argument(help="A pose file with one clip.")]
LabelsOption = Annotated[
    Path | None,
    typer.Option(help="Ground truth: a mask of the clip as .npy (1 = abnormal), or its data set."),
]
TrainingPoses = Annotated[
    list[Path],
    typer.Argument(
        help="Pose files, directories of them, or data sets, whose training clips are used."
    ),
]
CalibratedCameraOption = Annotated[
    str | None, typer.Option(help="Camera of the clip, if the calibration has several.")
]
Others = TypeVar("Others", bound="DataclassInstance")
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="TOML file with further settings: fields of `Config`."),
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
    typer.Option(min=0.1, max=1000, help="Frames per second of footage that does not state it."),
]
FramePart = Annotated[
    str, typer.Option(metavar="A:B", help="Only frames A up to B; `:500` is the first 500.")
]
DataSeed = Annotated[int, typer.Option(min=0, help="The same seed gives the same files.")]
Device = Annotated[str, typer.Option(help="Torch device that trains: `cpu`, `cuda` or `cuda:1`.")]
ModelOutput = Annotated[Path, typer.Option("-o", "--output", help="The model file to write.")]
TableFile = Annotated[
    Path | None, typer.Option("--table", help="Table file: .csv, otherwise Markdown.")
]
FitJobsOption = Annotated[int, typer.Option(min=1, help="Fits to run in parallel.")]
ExecutorName = Annotated[
    Literal["processes", "ray"],
    typer.Option(help="Where to run: local processes, or a Ray cluster."),
]
AGO = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Units of relative times, in seconds."""

SiteDataOption = Annotated[Path, typer.Option("--data", "-d", help="Data directory of the site.")]
Here = Path("site-data")
Fleet = Annotated[
    Path | None,
    typer.Option("--fleet", metavar="FLEET.toml", help="Use the database of a fleet instead."),
]
CameraOption = Annotated[str | None, typer.Option(help="Only events of this camera.")]
AnyCamera = Annotated[
    str | None,
    typer.Option(
        "--camera",
        help="Only events of this camera; in a fleet SITE/CAMERA, or SITE/ for all of it.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(help="Only events since this time: 2026-05-01T14:00, or 2d, 3h, 10m, 30s ago."),
]
Until = Annotated[
    str | None, typer.Option(help="Only events before this time, written as for --since.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
Scrub = Annotated[
    bool,
    typer.Option("--scrub", help="In a fleet: rewrite the table, to leave no trace in its files."),
]
EventIdArgument = Annotated[str, typer.Argument(help="Event id.")]
RuntimeName = Annotated[
    Runtime,
    typer.Option(
        help="Inference engine. `auto`: the same scores on every machine; "
        "`fastest`: bfloat16 if the CPU supports it."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Number of threads; defaults to OMP_NUM_THREADS, or all cores."),
]


def configured(base: Config, file: Path | None, **options: Any) -> Config:
    """Settings overridden by those in a TOML file, and then by the options that are given.

    A number of epochs lifts a limit on the steps.
    """
    return configured_with(base, file, NoOthers(), **options)[0]


@dataclass(frozen=True, slots=True)
class NoOthers:
    """The rare settings of a command that has none."""


def configured_with(
    base: Config, file: Path | None, others: Others, **options: Any
) -> tuple[Config, Others]:
    """The same, and the command's own rare settings, which are keys of the file, too."""
    stated = {} if file is None else _read_settings(file, others)
    own = {name: stated.pop(name) for name in get_type_hints(type(others)) if name in stated}
    given = {name: value for name, value in options.items() if value is not None}
    if "epochs" in stated | given:
        base = replace(base, max_steps=None)
    try:
        base = replace(base, **stated)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.problem}", hint=error.hint) from None
    return replace(base, **given), replace(others, **own)


def _read_settings(file: Path, others: Any) -> dict[str, Any]:
    """The settings in a TOML file: fields of `Config`, which checks them, or of `others`."""
    try:
        stated = tomllib.loads(file.read_text("utf-8"))
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigError(
            f"{file}: expected settings in TOML, got: {error}",
            hint="one setting a line, as learning_rate = 5e-4",
        ) from None
    own = get_type_hints(type(others))
    known = {one.name for one in fields(Config)} - {"view", "views"} | own.keys()
    for name, value in stated.items():
        if name not in known:
            raise ConfigError(
                f"{file}: {name}: expected a known setting, got an unknown name",
                hint=f"the settings are {', '.join(sorted(known, key=str.lower))}",
            )
        if name in own:
            stated[name] = _checked(value, own[name], f"{file}: {name}")
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in stated.items()
    }


def _checked(value: object, kind: Any, where: str) -> object:
    """A value of this type; a whole number is a number, too."""
    import msgspec  # imported here to keep --help fast

    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        words = ", ".join(map(str, get_args(kind))) or kind.__name__
        raise ConfigError(f"{where}: expected {words}, got {value!r}") from None


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


def on_engine(fitted: Fitted, runtime: Runtime, threads: int | None = None) -> Fitted:
    """Move a fitted method to the chosen engine; distances have no network and run on numpy."""
    from stepvad.detector import Detector

    if isinstance(fitted, Detector):
        return replace(fitted, runtime=runtime, threads=threads)
    if runtime != "auto":
        raise StepvadError(
            f"--runtime: expected a model with a network for {runtime!r}, got distances",
            hint="leave --runtime out",
        )
    return fitted


def engine_words(detector: Detector) -> str:
    """The engine of a detector and its threads, as text."""
    return f"{detector.network.engine}, threads: {detector.network.threads}"


def load_detector(path: Path) -> Detector:
    """Load a model with a network; distances have none and are rejected."""
    from stepvad.detector import Detector
    from stepvad.evaluation import baselines

    fitted = baselines.load(path)
    if not isinstance(fitted, Detector):
        raise StepvadError(
            f"{path}: expected a model with a network, got distances",
            hint="fit one with: stepvad fit POSES -o model.safetensors",
        )
    return fitted


def read_poses(
    paths: Sequence[Path],
    format: str,
    report: Report,
    *,
    fps: float | None = None,
    distinct: bool = False,
) -> Iterator[Clip]:
    """Yield the clips of all given files and directories; `distinct` rejects duplicate names."""
    from stepvad.formats import read_all

    return _noted(read_all(paths, format=format, fps=fps, distinct=distinct, report=report))


def read_clip(path: Path, format: str, report: Report) -> Clip:
    """The only clip of a file; it must contain at least one pose."""
    from stepvad.formats import read_people

    with notes_of("stepvad.formats", once=True):
        return read_people(path, format=format, report=report)


def read_training_poses(
    paths: Sequence[Path], format: str, report: Report, *, fps: float | None = None
) -> Iterator[Clip]:
    """Yield the clips to fit on: the training clips of data sets, and all clips of other paths."""
    from stepvad.evaluation.datasets import read_training

    clips = _noted(read_training(paths, format=format, report=report))
    return (clip.with_rate(fps) for clip in clips)


def _noted(clips: Iterator[Clip]) -> Iterator[Clip]:
    """Pass clips through; log messages of the readers go to stderr."""
    with notes_of("stepvad.formats", once=True), notes_of("stepvad.windows"):
        yield from clips


def calibration_of(model: Path, sha256: str | None = None) -> Calibration | None:
    """The calibration beside a model, if it exists and belongs to this model."""
    from stepvad.events.calibration import find_calibration

    with notes_of("stepvad.events.calibration"):
        return find_calibration(model, sha256)


def rules_for(
    model: Path, threshold: float | None, camera: str | None, sha256: str | None = None
) -> tuple[Rules, Threshold | None]:
    """The rules for events, and the promise of their threshold."""
    from stepvad.events import calibration

    with notes_of("stepvad.events.calibration"):
        return calibration.rules_for(model, sha256, threshold=threshold, camera=camera)


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


def time_of(text: str | None, option: str) -> float | None:
    """A time in unix seconds, parsed from a date or a time before now."""
    if text is None:
        return None
    amount, unit = text[:-1], text[-1:]
    if unit in AGO and amount.replace(".", "", 1).isdecimal():
        return (datetime.now(UTC) - timedelta(seconds=float(amount) * AGO[unit])).timestamp()
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ConfigError(
            f"{option}: expected a time, got {text!r}",
            hint="2026-05-01, 2026-05-01T14:00, or 2d, 3h, 10m, 30s before now",
        ) from None


def ask(question: str) -> None:
    """Ask the user for confirmation, and exit if the answer is no."""
    if not typer.confirm(question, err=True):
        raise typer.Abort
