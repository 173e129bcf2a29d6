"""Options of several commands, each defined once, how they are grouped, and what they stand for."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from typer import Abort, Argument, Option
from typer import confirm as ask

import stepvad
from stepvad.cli.terminal import check_fleet, notes_of, say
from stepvad.config import Config, Reference, Runtime
from stepvad.errors import ConfigError, Report, StepvadError
from stepvad.formats import FORMATS

if TYPE_CHECKING:
    from stepvad.evaluation.baselines import Fitted
    from stepvad.events.calibration import Calibration
    from stepvad.fleet.settings import FleetSettings

ModelFile = Annotated[Path, Argument(help="A model file.")]
PosesArgument = Annotated[list[Path], Argument(help="Pose files, or directories of pose files.")]
if TYPE_CHECKING:
    PoseFormat = str
else:
    PoseFormat = Literal["auto", *FORMATS]
FormatOption = Annotated[PoseFormat, Option("--format", help="Format of the pose files.")]
FpsOption = Annotated[
    float | None,
    Option(min=0.1, max=1000, help="Frames per second of footage that does not state it."),
]
FramePart = Annotated[
    str, Option(metavar="A:B", help="Only frames A up to B; `:500` is the first 500.")
]
CalibratedCamera = Annotated[
    str | None, Option(help="Camera of the clip, if the calibration has several.")
]
RuntimeName = Annotated[
    Runtime,
    Option(
        help="Inference engine. `auto`: the same scores on every machine; "
        "`fastest`: bfloat16 if the CPU supports it."
    ),
]
Device = Annotated[str, Option(help="Torch device that trains: `cpu`, `cuda` or `cuda:1`.")]
SettingsFile = Annotated[
    Path | None,
    Option(
        "--settings", help="TOML file of settings: fields of `Config`, rare ones under [reference]."
    ),
]
SplitName = Annotated[
    Literal["full", "hr", "st", "ub", "validation"],
    Option(
        help="`hr`: human-related anomalies only; `st`, `ub`: the same on MSAD; "
        "`validation`: the clips for tuning."
    ),
]
Yes = Annotated[bool, Option("--yes", "-y", help="Skip the confirmation.")]
AsJson = Annotated[bool, Option("--json", help="Print the result as JSON.")]

SITE_DATA = Path("site-data")
"""Data directory of a site, if no other is named."""
AGO = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Units of relative times, in seconds."""


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """Expose each field of a command's dataclass parameters to typer as a parameter of its own."""
    declared = signature(verb, eval_str=True).parameters
    groups: dict[str, Any] = {
        name: one.annotation for name, one in declared.items() if is_dataclass(one.annotation)
    }

    def spelled_out(**values: Any) -> None:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        verb(**values, **made)

    # the fields stand where the group stood: that is their order in --help
    parameters: list[Parameter] = []
    for name, one in declared.items():
        group = groups.get(name)
        if group is None:
            parameters.append(one.replace(kind=Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(group, include_extras=True)
        for field in fields(group):
            default = Parameter.empty if field.default is MISSING else field.default
            kind, hint = Parameter.KEYWORD_ONLY, hints[field.name]
            parameters.append(Parameter(field.name, kind, default=default, annotation=hint))

    # typer reads these, and nothing else, of a function
    spelled_out.__signature__ = signature(verb).replace(parameters=parameters)  # type: ignore[attr-defined]  # typer reads it
    spelled_out.__annotations__ = {one.name: one.annotation for one in parameters}
    spelled_out.__name__, spelled_out.__doc__ = verb.__name__, verb.__doc__
    return spelled_out


def configured(base: Config, file: Path | None, **given: Any) -> Config:
    """Settings overridden by those in a TOML file, and then by the options that are given.

    A number of epochs lifts a limit on the steps.
    """
    stated = {} if file is None else _read_settings(file)
    reference = stated.pop("reference", {})
    given = {name: value for name, value in given.items() if value is not None}
    if "epochs" in stated | given:
        base = replace(base, max_steps=None)
    try:
        base = replace(base, **stated, reference=replace(base.reference, **reference))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.problem}", hint=error.hint) from None
    return replace(base, **given)


def _read_settings(file: Path) -> dict[str, Any]:
    """The settings in a TOML file: fields of `Config`, which checks them."""
    try:
        stated = tomllib.loads(file.read_text("utf-8"))
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigError(
            f"{file}: expected settings in TOML, got: {error}",
            hint="one setting a line, as learning_rate = 5e-4",
        ) from None
    known = {one.name for one in fields(Config)} - {"view"}
    rarer = {one.name for one in fields(Reference)}
    reference = stated.get("reference", {})
    if not isinstance(reference, dict):
        raise ConfigError(f"{file}: reference: expected a table, got {reference!r}")
    for names, given in ((known, stated), (rarer, reference)):
        if unknown := [name for name in given if name not in names]:
            raise ConfigError(
                f"{file}: {unknown[0]}: expected a known setting, got an unknown name",
                hint=f"the settings are {', '.join(sorted(known, key=str.lower))}; "
                f"under [reference]: {', '.join(sorted(rarer))}",
            )
    return stated


def frame_range(text: str, n_frames: int | None = None) -> tuple[int, int | None]:
    """Parse `A:B` as the first frame and the one after the last; None if the end is unknown."""
    # both ends may be left out: `:` is everything
    found = re.fullmatch("([0-9]*):([0-9]*)", text)
    first, end = (int(found[1] or 0), int(found[2]) if found[2] else n_frames) if found else (0, 0)
    if end is not None and not first < end <= (end if n_frames is None else n_frames):
        most = "" if n_frames is None else f", up to {n_frames}"
        raise StepvadError(
            f"--frames: expected A:B with A below B{most}, got {text}",
            hint="the first 500 frames are :500, the rest 500:",
        )
    return first, end


def on_engine(fitted: Fitted, runtime: Runtime) -> Fitted:
    """Move a fitted method to the chosen engine; distances have no network and run on numpy."""
    if isinstance(fitted, stepvad.Detector):
        return fitted.with_engine(runtime)
    if runtime != "auto":
        raise StepvadError(
            f"--runtime: expected a model with a network for {runtime!r}, got distances",
            hint="leave --runtime out",
        )
    return fitted


def load_detector(path: Path) -> stepvad.Detector:
    """Load a model with a network; distances have none and are rejected."""
    from stepvad.evaluation import baselines

    fitted = baselines.load(path)
    if not isinstance(fitted, stepvad.Detector):
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
) -> Iterator[stepvad.Clip]:
    """Yield the clips of all given files and directories; `distinct` rejects duplicate names."""
    from stepvad.formats import read_all

    return with_notes(read_all(paths, format=format, fps=fps, distinct=distinct, report=report))


def with_notes(clips: Iterator[stepvad.Clip]) -> Iterator[stepvad.Clip]:
    """Pass clips through; log messages of the readers go to stderr."""
    with notes_of("stepvad.formats", once=True), notes_of("stepvad.windows"):
        yield from clips


def calibration_of(model: Path, sha256: str | None = None) -> Calibration | None:
    """The calibration beside a model, if it exists and belongs to this model."""
    from stepvad.events import calibration

    with notes_of("stepvad.events.calibration"):
        return calibration.find_calibration(model, sha256)


def warn_of_rates(
    model: Path, config: Config, rates: Iterable[float], camera: str | None = None
) -> None:
    """Warn of footage whose frame rate is not that of the calibration beside a model."""
    made = calibration_of(model)
    notes = (made and made.rate_note(config, rate, camera) for rate in sorted(rates))
    for note in filter(None, notes):
        say(f"warning: {note}")


def excused(
    model: Path, fitted: Fitted, camera: str | None
) -> Callable[[stepvad.Clip, stepvad.Scores], stepvad.Scores]:
    """What lowers the scores of a camera's clips by its exceptions, as at its site."""
    made = None if camera is None else calibration_of(model)
    if made is None or not isinstance(fitted, stepvad.Detector):
        return lambda clip, scores: scores
    excuse = made.excuse(fitted, camera)
    return lambda clip, scores: replace(scores, windows=excuse.in_clip(clip, scores.windows))


def load_fleet(path: Path) -> FleetSettings:
    """The settings of a fleet; raises if its libraries are not installed."""
    check_fleet()
    from stepvad.fleet.settings import load

    return load(path)


def camera_of(path: Path) -> str:
    """The camera of a path's footage, named after the file or directory."""
    return path.resolve().stem if path.is_file() else path.resolve().name


def parse_time(text: str | None, option: str) -> float | None:
    """A time in unix seconds, parsed from a date or a time before now."""
    if text is None:
        return None
    # an age such as 2d, else a date
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


def confirm(question: str) -> None:
    """Ask the user for confirmation, and exit if the answer is no."""
    if not ask(question, err=True):
        raise Abort
