"""stepvad score, explain, report and overlay: how abnormal people move, why, and how it looks."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.groups import grouped
from stepvad.cli.options import (
    CalibratedCameraOption,
    FormatOption,
    FpsOption,
    FramePart,
    LabelsOption,
    PoseFile,
    PosesArgument,
    RuntimeName,
    Threads,
    calibration_of,
    frame_range,
    load_detector,
    on_engine,
    read_clip,
    read_poses,
    rules_for,
    warn_of_rates,
)
from stepvad.cli.terminal import (
    AsJson,
    ModelFile,
    check_output,
    check_picture,
    notes_of,
    print_json,
    print_table,
    progress_bars,
    say,
)
from stepvad.errors import ConfigError, MissingExtraError, StepvadError

if TYPE_CHECKING:
    from stepvad.events.marks import FoundEvent
    from stepvad.explain import Explanation, ViewShare
    from stepvad.model.scoring import Scores
    from stepvad.poses import Clip
    from stepvad.video.overlay import PixelSize

SHOWN = 3
"""Names of clips in a warning."""
EventsOption = Annotated[
    Path | None,
    typer.Option(help="Events as JSON lines, at the calibrated threshold."),
]
ScoresOutput = Annotated[Path | None, typer.Option("-o", "--output", help="Frame scores as CSV.")]
Plot = Annotated[
    Path | None,
    typer.Option(help="Timeline as .png; for several clips, a directory for one per clip."),
]


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
    runtime: RuntimeName = "auto",
    threads: Threads = None,
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

        stepvad score model.safetensors poses/ -o scores.csv --runtime fastest
    """
    from stepvad.evaluation import baselines
    from stepvad.events.marks import FoundWith, found_events, write_found
    from stepvad.formats.tables import score_csv

    for path in filter(None, (output, events)):
        check_output(path)
    if plot is not None:
        _check_plot(plot)
    fitted, sha256 = baselines.load_with_digest(model)
    rules = None if events is None else rules_for(model, None, camera, sha256)[0]
    detector = on_engine(fitted, runtime, threads)
    where = FoundWith.from_paths(model, sha256, poses, camera=camera)
    moments: list[list[str]] = []
    everything: list[dict[str, object]] = []
    found: list[FoundEvent] = []
    rates: set[float] = set()
    with progress_bars() as report, score_csv(output) as write_frames:
        for number, clip in enumerate(read_poses(poses, format, report, fps=fps, distinct=True)):
            scores = detector.score(clip, report=report)
            write_frames(scores)
            if rules is not None:
                rates.add(clip.rate(fps))
                found += found_events(clip, scores, clip.rate(fps), rules, where)
            if plot is not None:
                _plot(scores, plot, number)
            moments.append(_moment(scores))
            if as_json:
                everything.append(_as_json(scores))
    _warn_of_empty([clip for clip, _, scored, *_ in moments if scored == "0"])
    if events is not None:
        warn_of_rates(model, detector.config, rates, camera)
        write_found(found, events)
        say(f"events: {len(found)}, written: {events}")
    if as_json:
        print_json(everything)
    else:
        columns = ["clip", "frames", "scored", "highest", "at frame", "track"]
        print_table("highest score of each clip", columns, moments)


def _warn_of_empty(clips: list[str]) -> None:
    if clips:
        names = ", ".join(clips[:SHOWN]) + (", …" if len(clips) > SHOWN else "")
        say(f"warning: nobody is seen for long enough to be scored, clips: {len(clips)} ({names})")


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
    from stepvad.report.plots import draw_timeline

    if path.is_dir():
        draw_timeline(scores, path / f"{file_stem(scores.clip)}.png")
    elif number == 0:
        draw_timeline(scores, path)
    else:
        raise StepvadError(
            f"{path}: expected a directory for the plots of several clips, got a file name",
            hint="create a directory and pass its name",
        )


SMALLEST = 0.005
"""Contributions below this, which print as 0.00, are left out where there are several views."""
PictureOption = Annotated[
    Path | None, typer.Option("-o", "--output", help="Film strips of the windows, as .png.")
]
TrackId = Annotated[
    int | None, typer.Option(help="Track id of the person to explain, with --frame.")
]
FrameNumber = Annotated[int | None, typer.Option(help="Last frame of the window to explain.")]
Top = Annotated[
    int, typer.Option(min=1, max=20, help="Number of people to explain, highest score first.")
]


def explain(
    model: ModelFile,
    poses: PosesArgument,
    output: PictureOption = None,
    *,
    track: TrackId = None,
    frame: FrameNumber = None,
    top: Top = 1,
    format: FormatOption = "auto",
    as_json: AsJson = False,
) -> None:
    """Explain why a window scores high: which body parts, when, and what would be normal.

    The highest-scoring window of all clips, also as a picture:

        stepvad explain model.safetensors poses/ -o why.png

    The three people with the highest scores, each at their peak:

        stepvad explain model.safetensors poses/ --top 3

    One person at one moment:

        stepvad explain model.safetensors clip.json --track 3 --frame 120

    The contributions of all body parts, plus the base, add up to the score. With several views, so
    do those of the views, and speed, size and place are listed with the body parts.
    """
    from stepvad.detector import Detector
    from stepvad.evaluation import baselines
    from stepvad.explain import explain as explain_places
    from stepvad.explain import explain_highest

    if (track is None) != (frame is None):
        raise StepvadError(
            "explain: expected --track and --frame together, got one of them",
            hint="give both, or neither for the highest score",
        )
    if output is not None:
        check_picture(output)
    detector = baselines.load(model)
    if not isinstance(detector, Detector):
        raise ConfigError(
            f"{model}: expected a model with an energy to explain, got one of distances",
            hint="fit a model of method step",
        )
    with progress_bars() as report:
        clips = read_poses(poses, format, report)
        if track is not None and frame is not None:
            explained = explain_places(detector, _only(clips), [(track, frame)])
        else:
            explained = explain_highest(detector, clips, top, report=report)
    if output is not None:
        from stepvad.report.sheets import draw_explanations

        draw_explanations(explained, output)
        say(f"drawn to {output}")
    if as_json:
        print_json([explanation.as_dict() for explanation in explained])
        return
    for explanation in explained:
        _print_explanation(explanation)


def _only(clips: Iterable[Clip]) -> Clip:
    """The only clip, which --track and --frame refer to."""
    clip, *others = clips
    if others:
        raise StepvadError(
            f"explain: expected one clip with --track and --frame, got {1 + len(others)}",
            hint="give one pose file",
        )
    return clip


def _print_explanation(explanation: Explanation) -> None:
    """Print the explanation, its evidence, and the contributions of views and body parts."""
    frames = f"frames {explanation.frames[0]}-{explanation.frames[-1]}"
    typer.echo(f"{explanation.clip}, track {explanation.track}, {frames}")
    for phrase in explanation.words or ("nothing unusual",):
        typer.echo(f"  {phrase}")
    sigmas = ", ".join(f"{sigma:.2f}" for sigma in explanation.scales)
    ghost = "in the normal range" if explanation.ghost_is_normal else "outside the normal range"
    decided = f"Noise scale   {sigmas} decided"
    if explanation.views:
        decided = f"Views         {explanation.share_words}"
    typer.echo(
        f"Score         {explanation.score:.2f}: {explanation.energy:.2f} before a confidence of "
        f"{explanation.confidence:.2f} took {explanation.taken_off:.2f} off\n"
        f"{decided}\n"
        f"Nearest       a normal motion with a highest energy of {explanation.ghost_energy:.2f}, "
        f"{ghost}"
    )
    if explanation.views:
        _print_views(explanation.views)
    rows = [
        [part.name, f"{part.contribution:+.2f}", f"{100 * part.share:.0f} %",
         "" if part.name in explanation.meanings else f"{part.first_frame}-{part.last_frame}"]
        for part in explanation.parts
        if not explanation.views or abs(part.contribution) >= SMALLEST
    ]  # fmt: skip
    rows.append(["base: the nearest normal motion", f"{explanation.base:+.2f}", "", ""])
    rows.append(["score", f"{explanation.score:+.2f}", "", ""])
    print_table("", ["part", "adds", "share", "mostly in frames"], rows)


def _print_views(views: Sequence[ViewShare]) -> None:
    """Print what each of several views adds to the score."""
    rows = [
        [view.name, f"{view.contribution:+.2f}",
         f"{100 * view.share:.0f} %" if view.at_hand else "not there for long enough"]
        for view in views
    ]  # fmt: skip
    print_table("", ["view", "adds", "share"], rows)


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
    as_json: AsJson = False,
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
    from stepvad.evaluation.datasets import read_truth
    from stepvad.files import replacing
    from stepvad.report.page import ReportedClip, render
    from stepvad.report.timeline import investigate

    _check_page(output)
    detector = load_detector(model)
    rules, promise = rules_for(model, threshold, camera, detector.model.sha256)
    with progress_bars() as bars:
        clip = read_clip(poses, format, bars)
        rate = clip.rate(fps)
        if threshold is None:
            warn_of_rates(model, detector.config, [rate], camera)
        clip = replace(clip, fps=rate)
        abnormal = None if labels is None else read_truth(labels, clip)
        if abnormal is not None:
            clip = clip.with_length(len(abnormal))
        scores = detector.score(clip, report=bars)
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
    if as_json:
        found = [asdict(incident.event) for incident in incidents]
        print_json({"report": str(output), "threshold": rules.threshold, "events": found})
    else:
        typer.echo(output)


def _check_page(output: Path) -> None:
    """Before the work starts, reject a page that cannot be written."""
    check_output(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise StepvadError(
            f"{output}: expected a name that ends in .html",
            hint="choose a name such as report.html",
        )


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
    from stepvad.evaluation.datasets import read_truth
    from stepvad.formats import file_stem
    from stepvad.video import overlay as overlays
    from stepvad.video.overlay import Stills, Target, frame_size, write
    from stepvad.video.source import VideoFile, open_footage
    from stepvad.video.timeline import ShownFrames, opencv

    opencv()
    _check_video(output, kept)
    detector = baselines.load(model)
    source = None if canvas.video is None else open_footage(canvas.video)
    with progress_bars() as report, notes_of("stepvad.video"):
        clip = read_clip(poses, format, report)
        abnormal = None if labels is None else read_truth(labels, clip)
        if abnormal is not None:
            clip = clip.with_length(len(abnormal))
        pixels = frame_size(clip, source, _size(canvas))
        first, end = frame_range(frames, clip.n_frames)
        chosen = range(first, end or clip.n_frames)
        stated = source.fps if isinstance(source, VideoFile) else None
        rate = canvas.fps or stated or clip.fps or DEFAULT_FPS
        scores = detector.score(clip, report=report)
        scale = overlays.scale_of(scores, _positive(threshold) or _calibrated(model))
        shown = ShownFrames(chosen, rate, abnormal)
        drawn = overlays.Overlay(clip, scores, shown, size=pixels, scale=scale)
        moments = Stills(kept.stills, tuple(kept.at or ())).of(drawn, chosen, rate)
        target = Target(output, file_stem(clip.name))
        write(drawn, target, chosen, moments, video=source, report=report)
    say(f"red from {scale.red:.3g}: {scale.meaning}")
    for frame in moments:
        typer.echo(target.still(frame))
    if not output.is_dir():
        typer.echo(output)


def _check_video(output: Path, kept: StillOptions) -> None:
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
    from stepvad.video.overlay import check_encoder

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
