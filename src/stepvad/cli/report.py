"""stepvad report: write the events of a clip as a self-contained HTML page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from stepvad.cli.calibrated import CalibratedCameraOption, rules_for, warn_of_rates
from stepvad.cli.engine import DEFAULT_ENGINE, EngineOptions, load_detector, on_engine
from stepvad.cli.groups import grouped
from stepvad.cli.options import FpsOption
from stepvad.cli.poses import FormatOption, LabelsOption, PoseFile, read_clip
from stepvad.cli.terminal import ModelFile, check_output, progress_bars, say
from stepvad.errors import StepvadError

ReportOutput = Annotated[Path, typer.Option("-o", "--output", help="The report, as .html.")]
ByHand = Annotated[
    float | None,
    typer.Option("--threshold", help="Event threshold, instead of the calibration's."),
]
ReportEventsOption = Annotated[
    int,
    typer.Option(
        min=0, max=200, help="Number of events to explain and animate, highest peak first."
    ),
]


@grouped
def report(
    model: ModelFile,
    poses: PoseFile,
    output: ReportOutput,
    *,
    threshold: ByHand = None,
    camera: CalibratedCameraOption = None,
    labels: LabelsOption = None,
    events: ReportEventsOption = 20,
    fps: FpsOption = None,
    format: FormatOption = "auto",
    engine: EngineOptions = DEFAULT_ENGINE,
) -> None:
    """Write an HTML report of a clip's events: when, who, what was unusual, and how it looked.

    With the threshold of the calibration next to the model:

        stepvad calibrate model.safetensors monday/ --alerts-per-hour 0.5

        stepvad report model.safetensors tuesday.parquet -o tuesday.html

    The report is one self-contained file without images. It animates the skeletons, with the joints
    that raise the score and the nearest normal motion, and can be printed.

    With the ground truth, at your own threshold:

        stepvad report model.safetensors clip.json -o clip.html --labels people --threshold 4
    """
    from stepvad.evaluation.footage import read_truth
    from stepvad.files.atomic import replacing
    from stepvad.report import ReportedClip, investigate, render

    _check_page(output)
    detector = load_detector(model)
    rules, promise = rules_for(model, threshold, camera, detector.model.sha256)
    scorer = on_engine(detector, engine)
    with progress_bars() as bars:
        clip = read_clip(poses, format, bars)
        rate = clip.rate(fps)
        if threshold is None:
            warn_of_rates(model, detector.config, [rate], camera)
        clip = replace(clip, fps=rate)
        abnormal = None if labels is None else read_truth(labels, clip)
        if abnormal is not None:
            clip = clip.with_length(len(abnormal))
        scores = scorer.score(clip, report=bars)
        incidents = investigate(detector, clip, scores, rules, most=events, report=bars)
    page = render(
        ReportedClip(
            scores=scores,
            fps=rate,
            model=detector.model,
            model_name=model.name,
            model_sha256=detector.model.sha256,
            rules=rules,
            threshold=promise,
            incidents=incidents,
            abnormal=abnormal,
            first_frame=clip.first_frame,
        )
    )
    with replacing(output) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")
    say(f"events: {len(incidents)}, at scores of {rules.threshold:.3g} or more")
    typer.echo(output)


def _check_page(output: Path) -> None:
    """Before the work starts, reject a page that cannot be written."""
    check_output(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise StepvadError(
            f"{output}: expected a name that ends in .html",
            hint="choose a name such as report.html",
        )
