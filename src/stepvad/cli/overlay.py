"""stepvad overlay: render a video with people in the colour of their scores."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.calibrated import calibration_of
from stepvad.cli.engine import DEFAULT_ENGINE, EngineOptions, on_engine
from stepvad.cli.groups import grouped
from stepvad.cli.options import FramePart, frame_range
from stepvad.cli.poses import FormatOption, LabelsOption, PoseFile, read_clip
from stepvad.cli.terminal import ModelFile, check_output, notes_of, progress_bars, say
from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from stepvad.video.overlay import PixelSize

OverlayOutput = Annotated[
    Path,
    typer.Option("-o", "--output", help="Output video as .mp4, or a directory for stills only."),
]
Video = Annotated[
    Path | None,
    typer.Option(
        help="Video or folder of pictures that the poses come from; without it, drawn on black."
    ),
]
StillsOption = Annotated[
    int, typer.Option(min=0, help="Number of stills to save as .png, at the highest scores.")
]
At = Annotated[list[int] | None, typer.Option(min=0, help="Frame to save as .png; repeatable.")]
OverlayThresholdOption = Annotated[
    float | None,
    typer.Option(
        help="Score at which skeletons are red; defaults to the calibration next to the model, "
        "or the clip's 99.9 % quantile, but at least 3."
    ),
]
Pixels = Annotated[
    str | None, typer.Option("--size", help="Size of the black background as WIDTHxHEIGHT.")
]
OutputFpsOption = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        max=1000,
        help="Frames per second; defaults to those of the video or the poses, otherwise 25.",
    ),
]

DEFAULT_FPS = 25.0
"""Frame rate if the user, the video and the clip give none."""


@dataclass(frozen=True, slots=True)
class CanvasOptions:
    """Background: a video, or black."""

    video: Video = None
    size: Pixels = None
    fps: OutputFpsOption = None


@dataclass(frozen=True, slots=True)
class StillOptions:
    """Frames to save as images."""

    stills: StillsOption = 0
    at: At = None


ON_BLACK, NO_STILLS = CanvasOptions(), StillOptions()


@grouped
def overlay(
    model: ModelFile,
    poses: PoseFile,
    output: OverlayOutput,
    *,
    canvas: CanvasOptions = ON_BLACK,
    labels: LabelsOption = None,
    frames: FramePart = ":",
    kept: StillOptions = NO_STILLS,
    threshold: OverlayThresholdOption = None,
    format: FormatOption = "auto",
    engine: EngineOptions = DEFAULT_ENGINE,
) -> None:
    """Draw every person in the colour of their score, with a timeline of all scores below.

    A skeleton is green up to score 0, the training mean, and turns red and thicker above it; grey
    means no score yet. The box has the colour of the track, with the mean confidence of the window
    above it and the score below. Drawn on black, so no camera pixel is kept:

        stepvad overlay model.safetensors clip.parquet -o clip.mp4

    On the video, with stills of the three highest scores:

        stepvad overlay model.safetensors clip.parquet -o clip.mp4 --video clip.avi --stills 3

    With the ground truth shaded; stills only:

        stepvad overlay model.safetensors clip.json -o . --labels people --at 120 --at 200
    """
    from stepvad.evaluation import baselines
    from stepvad.evaluation.footage import read_truth
    from stepvad.formats import file_stem
    from stepvad.video import overlay as overlays
    from stepvad.video import overlay_files
    from stepvad.video.drawing import opencv
    from stepvad.video.footage import open_footage
    from stepvad.video.source import VideoFile
    from stepvad.video.timeline import ShownFrames

    opencv()
    _check_output(output, kept)
    detector = on_engine(baselines.load(model), engine)
    source = None if canvas.video is None else open_footage(canvas.video)
    with progress_bars() as report, notes_of("stepvad.video"):
        clip = read_clip(poses, format, report)
        abnormal = None if labels is None else read_truth(labels, clip)
        if abnormal is not None:
            clip = clip.with_length(len(abnormal))
        pixels = overlay_files.frame_size(clip, source, _size(canvas))
        first, end = frame_range(frames, clip.n_frames)
        chosen = range(first, end or clip.n_frames)
        stated = source.fps if isinstance(source, VideoFile) else None
        rate = canvas.fps or stated or clip.fps or DEFAULT_FPS
        scores = detector.score(clip, report=report)
        scale = overlays.scale_of(scores, _positive(threshold) or _calibrated(model))
        shown = ShownFrames(chosen, rate, abnormal)
        drawn = overlays.Overlay(clip, scores, shown, size=pixels, scale=scale)
        moments = overlay_files.Stills(kept.stills, tuple(kept.at or ())).of(drawn, chosen, rate)
        target = overlay_files.Target(output, file_stem(clip.name))
        overlay_files.write(drawn, target, chosen, moments, video=source, report=report)
    say(f"red from {scale.red:.3g}: {scale.meaning}")
    for frame in moments:
        typer.echo(target.still(frame))
    if not output.is_dir():
        typer.echo(output)


def _check_output(output: Path, kept: StillOptions) -> None:
    """Before the work starts, reject an output that cannot be written."""
    if output.is_dir():
        if not kept.stills and not kept.at:
            raise StepvadError(
                f"{output}: expected stills to put into a directory, got none",
                hint="add --stills 3 or --at 120, or name an .mp4 file",
            )
        return
    check_output(output)
    if output.suffix.lower() != ".mp4":
        raise StepvadError(
            f"{output}: expected a name that ends in .mp4, or a directory that exists",
            hint="name an .mp4 file, or create the directory first",
        )
    from stepvad.video.writing import check_encoder

    check_encoder()


def _size(canvas: CanvasOptions) -> PixelSize | None:
    """The size of the black canvas, if given."""
    text = canvas.size
    if text is None:
        return None
    if canvas.video is not None or not re.fullmatch("[0-9]+x[0-9]+", text):
        raise StepvadError(
            f"--size: expected a size like 1280x720, without --video, got {text}",
            hint="drop --size: a video has its own",
        )
    width, _, height = text.partition("x")
    return int(width), int(height)


def _positive(threshold: float | None) -> float | None:
    if threshold is not None and not 0 < threshold < float("inf"):
        raise StepvadError(
            f"--threshold: expected a number above 0, got {threshold}",
            hint="0 is the mean of training, and is drawn green",
        )
    return threshold


def _calibrated(model: Path) -> float | None:
    made = calibration_of(model)
    return None if made is None else made.threshold.value
