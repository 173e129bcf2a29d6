"""stepvad calibrate: a threshold from normal footage alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.calibrated import camera_of
from stepvad.cli.engine import RuntimeName, load_detector
from stepvad.cli.groups import grouped
from stepvad.cli.options import FpsOption
from stepvad.cli.poses import FormatOption, PosesArgument, read_poses
from stepvad.cli.terminal import AsJson, ModelFile, check_output, print_json, progress_bars, say

if TYPE_CHECKING:
    from stepvad.calibration import Calibration, Threshold


@dataclass(frozen=True, slots=True)
class PromiseOptions:
    """Options of the promise."""

    alerts_per_hour: Annotated[
        float, typer.Option(help="False events allowed per camera and hour; one a day is 0.04.")
    ]
    confidence: Annotated[float, typer.Option(help="Confidence level of the promise.")] = 0.95


@dataclass(frozen=True, slots=True)
class EventOptions:
    """Options that define an event."""

    min_seconds: Annotated[
        float, typer.Option(help="Time a person must stay above the threshold to count.")
    ] = 0.4
    gap_seconds: Annotated[float, typer.Option(help="Quiet time after which an event ends.")] = 3.0
    max_interpolated: Annotated[
        float,
        typer.Option(help="Share of interpolated poses above which a window raises no event."),
    ] = 0.5


USUAL_EVENTS = EventOptions()


@grouped
def calibrate(
    model: ModelFile,
    poses: PosesArgument,
    *,
    promise: PromiseOptions,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Calibration file; defaults to a file next to the model."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Plot events per hour against the threshold, as .png.")
    ] = None,
    fps: FpsOption = None,
    events: EventOptions = USUAL_EVENTS,
    format: FormatOption = "auto",
    runtime: RuntimeName = "auto",
    as_json: AsJson = False,
) -> None:
    """Find a threshold that promises a low false alert rate, from normal footage alone.

    Use footage that the model was not fitted on:

        stepvad calibrate model.safetensors monday/ --alerts-per-hour 0.5

    An event starts when someone stays above the threshold for a while, and includes anything soon
    after. Each directory is one camera; directories with the same name are the same camera. A
    camera gets its own threshold if it has enough footage:

        stepvad calibrate model.safetensors door/ hall/ --alerts-per-hour 0.1 --plot rates.png

    With too little footage for the promise, the threshold is provisional: a guess that promises
    nothing. The command always shows the promise that more footage would support.
    """
    from stepvad.calibration import RULES, file
    from stepvad.calibration.footage import ScoredFootage

    where = output if output is not None else file.beside(model)
    for path in filter(None, (where, plot)):
        check_output(path)
    footage = ScoredFootage(replace(load_detector(model), runtime=runtime))
    with progress_bars() as report:
        for path in poses:
            clips = read_poses([path], format, report, fps=fps)
            footage.add(camera_of(path), clips, fps=fps, report=report)
        calibration = footage.calibrate(
            alerts_per_hour=promise.alerts_per_hour,
            confidence=promise.confidence,
            rules=replace(
                RULES,
                min_s=events.min_seconds,
                gap_s=events.gap_seconds,
                max_interpolated=events.max_interpolated,
            ),
        )
    file.write(calibration, where)
    if plot is not None:
        from stepvad.plots.calibration import draw

        draw(calibration, plot)
    if as_json:
        print_json([_facts(calibration)])
    else:
        for sentence in _sentences(calibration):
            typer.echo(sentence)
    say(f"written: {where}")


def _facts(calibration: Calibration) -> dict[str, object]:
    return {
        "threshold": asdict(calibration.threshold),
        "cameras": {name: asdict(own) for name, own in calibration.cameras.items()},
        "rules": asdict(calibration.rules),
        "model_sha256": calibration.model_sha256,
    }


def _sentences(calibration: Calibration) -> Iterator[str]:
    from stepvad.calibration.promise import duration

    threshold = calibration.threshold
    yield f"{duration(threshold.hours)} of normal footage, cameras: {len(calibration.counted)}"
    yield _promise_words(threshold)
    low, high = threshold.rate
    yield (
        f"true rate at this threshold: {low:.2g} to {high:.2g} per hour (95 %); "
        f"events in this footage: {threshold.events}"
    )
    yield from _more_footage(calibration)
    for camera in calibration.counted if len(calibration.counted) > 1 else ():
        own = calibration.cameras.get(camera)
        words = "too little footage; uses the common threshold"
        yield f"{camera}: {_promise_words(own) if own is not None else words}"


def _more_footage(calibration: Calibration) -> Iterator[str]:
    """What more footage would buy."""
    from stepvad.calibration.promise import duration, hours_for_promise, hours_to_count, strictest

    threshold, (first, *others) = calibration.threshold, calibration.counted.values()
    rate, confidence, hours = threshold.alerts_per_hour, threshold.confidence, threshold.hours
    if not threshold.is_promised:
        needed = hours_for_promise(first.joined(others), rate, confidence)
        yield f"a promise of at most {rate:g} per hour needs about {duration(needed)} in total"
    if threshold.how != "counted":
        needed = hours_to_count(rate, confidence)
        yield f"to confirm it by counting takes {duration(needed)} without an event"
    now, later = strictest(hours), strictest(10 * hours)
    yield f"strictest promise: {now:.2g} per hour from this footage, {later:.2g} from ten times it"


def _promise_words(threshold: Threshold) -> str:
    return f"threshold {threshold.value:.2f}: {threshold.words}"
