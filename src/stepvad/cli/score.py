"""stepvad score: anomaly scores of pose files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.calibrated import CalibratedCameraOption, rules_for, warn_of_rates
from stepvad.cli.engine import DEFAULT_ENGINE, EngineOptions, on_engine
from stepvad.cli.groups import grouped
from stepvad.cli.options import FpsOption
from stepvad.cli.poses import FormatOption, PosesArgument, read_poses
from stepvad.cli.terminal import (
    AsJson,
    ModelFile,
    check_output,
    print_json,
    print_table,
    progress_bars,
    say,
)
from stepvad.errors import MissingExtraError, StepvadError

if TYPE_CHECKING:
    from stepvad.formats.eventlines import FoundEvent
    from stepvad.model.scoring import Scores

EventsOption = Annotated[
    Path | None,
    typer.Option(help="Events as JSON lines, at the calibrated threshold."),
]
ScoresOutput = Annotated[Path | None, typer.Option("-o", "--output", help="Frame scores as CSV.")]
Plot = Annotated[
    Path | None,
    typer.Option(help="Timeline as .png; for several clips, a directory for one per clip."),
]


@grouped
def score(
    model: ModelFile,
    poses: PosesArgument,
    output: ScoresOutput = None,
    *,
    plot: Plot = None,
    events: EventsOption = None,
    camera: CalibratedCameraOption = None,
    fps: FpsOption = None,
    format: FormatOption = "auto",
    engine: EngineOptions = DEFAULT_ENGINE,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Print the inference engine in use.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Score every frame by its most unusual person; higher is more abnormal.

    The highest score of every clip:

        stepvad score model.safetensors poses/

    Every frame as CSV, and a plot:

        stepvad score model.safetensors clip.json -o scores.csv --plot scores.png

    The events that would raise alerts, after calibrate:

        stepvad score model.safetensors poses/ --events events.jsonl

    A lot of footage, in bfloat16 if the CPU supports it:

        stepvad score model.safetensors poses/ -o scores.csv --runtime fastest -v
    """
    from stepvad.evaluation import baselines
    from stepvad.formats import eventlines, scoretable

    for path in filter(None, (output, events)):
        check_output(path)
    if plot is not None:
        _check_plot(plot)
    fitted, sha256 = baselines.load_with_digest(model)
    rules = None if events is None else rules_for(model, None, camera, sha256)[0]
    detector = on_engine(fitted, engine, verbose=verbose)
    where = eventlines.FoundWith.of(model, sha256, poses, camera=camera)
    moments: list[list[str]] = []
    everything: list[dict[str, object]] = []
    found: list[FoundEvent] = []
    rates: set[float] = set()
    with progress_bars() as report, scoretable.writing(output) as write_frames:
        for number, clip in enumerate(read_poses(poses, format, report, fps=fps, distinct=True)):
            scores = detector.score(clip, report=report)
            write_frames(scores)
            if rules is not None:
                rates.add(clip.rate(fps))
                found += eventlines.find(clip, scores, clip.rate(fps), rules, where)
            if plot is not None:
                _plot(scores, plot, number)
            moments.append(_moment(scores))
            if as_json:
                everything.append(_as_json(scores))
    if events is not None:
        warn_of_rates(model, detector.config, rates, camera)
        eventlines.write(found, events)
        say(f"events: {len(found)}, written: {events}")
    if as_json:
        print_json(everything)
    else:
        columns = ["clip", "frames", "scored", "highest", "at frame", "track"]
        print_table("highest score of each clip", columns, moments)


def _moment(scores: Scores) -> list[str]:
    """The highest score of a clip, with its frame and track."""
    windows = scores.windows
    where = ["-", "-", "-"]
    if len(windows):
        top = int(windows.A.argmax())
        where = [f"{windows.A[top]:.2f}", f"{windows.frame[top]}", f"{windows.track_id[top]}"]
    covered = len(set(windows.frame.tolist()))
    return [scores.clip, f"{scores.n_frames:,}", f"{covered:,}", *where]


def _as_json(scores: Scores) -> dict[str, object]:
    windows = scores.windows
    return {
        "clip": scores.clip,
        "frames": scores.frames.tolist(),
        "windows": {
            "track": windows.track_id.tolist(),
            "frame": windows.frame.tolist(),
            "confidence": windows.c.tolist(),
            "score": windows.A.tolist(),
        },
    }


def _check_plot(path: Path) -> None:
    """Before the work starts, reject a plot that cannot be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("plot", "plots")
    if path.is_dir():
        return
    check_output(path)
    if path.suffix.lower() != ".png":
        raise StepvadError(
            f"{path}: expected a name that ends in .png, or a directory that exists",
            hint="name a .png file, or create the directory first",
        )


def _plot(scores: Scores, path: Path, number: int) -> None:
    from stepvad.formats import file_stem
    from stepvad.plots.timeline import draw_timeline

    if path.is_dir():
        draw_timeline(scores, path / f"{file_stem(scores.clip)}.png")
    elif number == 0:
        draw_timeline(scores, path)
    else:
        raise StepvadError(
            f"{path}: expected a directory for the plots of several clips, got a file name",
            hint="create a directory and pass its name",
        )
