"""stepvad score, explain, report and overlay: how abnormal people move, why, and how it looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, echo

import stepvad
from stepvad.cli import options, terminal
from stepvad.errors import Report, StepvadError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stepvad.events.rules import Rules
    from stepvad.explain import ViewShare

NAMED = 3
"""Names of clips in a warning."""
SMALLEST = 0.005
"""Contributions below this, which print as 0.00, are left out where there are several views."""
DEFAULT_FPS = 25.0
"""Frame rate if the user, the video and the clip give none."""


def score(
    model: options.ModelFile,
    poses: options.PosesArgument,
    *,
    output: Annotated[Path | None, Option("-o", "--output", help="Frame scores as CSV.")] = None,
    plot: Annotated[
        Path | None,
        Option(help="Timeline as .png; for several clips, a directory for one per clip."),
    ] = None,
    events: Annotated[
        Path | None, Option(help="Events as JSON lines, at the calibrated threshold.")
    ] = None,
    camera: options.CalibratedCamera = None,
    fps: options.FpsOption = None,
    format: options.FormatOption = "auto",
    runtime: options.RuntimeName = "auto",
    as_json: options.AsJson = False,
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
    from stepvad.events import calibration
    from stepvad.formats.tables import score_csv

    for path in filter(None, (output, events)):
        terminal.check_output(path)
    if plot is not None:
        terminal.check_picture(plot, or_directory=True)
    fitted, sha256 = baselines.load_with_digest(model)
    with terminal.notes_of("stepvad.events.calibration"):
        rules = calibration.rules_for(model, sha256, camera=camera)[0] if events else None
    # bit-equal scores by default; another engine only if it is named
    detector = options.on_engine(fitted, runtime)
    excused = options.excused(model, detector, camera)

    # clip by clip: only a summary of each stays in memory, unless all are printed
    where = {
        "camera": camera,
        "model": str(model.resolve()),
        "poses": [str(path.resolve()) for path in poses],
        "model_sha256": sha256,
    }
    rows: list[list[str]] = []
    facts: list[dict[str, object]] = []
    found: list[dict[str, object]] = []
    rates: set[float] = set()
    with terminal.progress_bars() as report, score_csv(output) as write_frames:
        clips = options.read_poses(poses, format, report, fps=fps, distinct=True)
        for number, clip in enumerate(clips):
            scores = detector.score(clip, report=report)
            write_frames(scores)
            if rules is not None:
                rate = clip.rate(fps)
                rates.add(rate)
                found += [where | one for one in _events(clip, excused(clip, scores), rate, rules)]
            if plot is not None:
                _plot(scores, plot, number)
            rows.append(_row(scores))
            if as_json:
                facts.append(_facts(scores))

    _warn_of_empty([clip for clip, _, scored, *_ in rows if scored == "0"])
    # a threshold was calibrated at a rate: footage of another raises other alerts
    if events is not None:
        options.warn_of_rates(model, detector.config, rates, camera)
        _write_events(found, events)
        terminal.say(f"events: {len(found)}, written: {events}")
    if as_json:
        terminal.print_json(facts)
    else:
        columns = ["clip", "frames", "scored", "highest", "at frame", "track"]
        terminal.print_table("highest score of each clip", columns, rows)


def _events(
    clip: stepvad.Clip, scores: stepvad.Scores, fps: float, rules: Rules
) -> Iterator[dict[str, object]]:
    """The events of a clip; an id is the clip, who began the event, and in which frame."""
    for event in stepvad.find_events(clip, scores, rules, fps=fps):
        id = f"{clip.name}-{event.tracks[0]}-{round(event.first_s * fps)}"
        facts = {"schema": 1, "id": id, "clip": clip.name, "fps": fps, "threshold": rules.threshold}
        yield facts | asdict(event)


def _write_events(found: Sequence[dict[str, object]], path: Path) -> None:
    from stepvad.codec import encode
    from stepvad.files import replacing

    with replacing(path) as temporary:
        temporary.write_bytes(b"".join(encode(event) + b"\n" for event in found))


def _warn_of_empty(clips: list[str]) -> None:
    if clips:
        names = ", ".join(clips[:NAMED]) + (", …" if len(clips) > NAMED else "")
        terminal.say(
            f"warning: nobody is seen for long enough to be scored, clips: {len(clips)} ({names})"
        )


def _row(scores: stepvad.Scores) -> list[str]:
    """The highest score of a clip, with its frame and track."""
    windows = scores.windows
    where = ["-", "-", "-"]
    if len(windows):
        # the most unusual window of all people, A is (N,)
        top = int(windows.A.argmax())
        where = [f"{windows.A[top]:.2f}", f"{windows.frame[top]}", f"{windows.track_id[top]}"]
    # frames in which a window ends: several people may share one
    covered = len(set(windows.frame.tolist()))
    return [scores.clip, f"{scores.n_frames:,}", f"{covered:,}", *where]


def _facts(scores: stepvad.Scores) -> dict[str, object]:
    windows = scores.windows
    return {
        "clip": scores.clip,
        "frames": scores.frames,
        "windows": {
            "track": windows.track_id,
            "frame": windows.frame,
            "confidence": windows.c,
            "score": windows.A,
        },
    }


def _plot(scores: stepvad.Scores, path: Path, number: int) -> None:
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


def explain(
    model: options.ModelFile,
    poses: options.PosesArgument,
    output: Annotated[
        Path | None, Option("-o", "--output", help="Film strips of the windows, as .png.")
    ] = None,
    *,
    track: Annotated[
        int | None, Option(help="Track id of the person to explain, with --frame.")
    ] = None,
    frame: Annotated[int | None, Option(help="Last frame of the window to explain.")] = None,
    top: Annotated[
        int, Option(min=1, max=20, help="Number of people to explain, highest score first.")
    ] = 1,
    format: options.FormatOption = "auto",
    as_json: options.AsJson = False,
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
    from stepvad import explain as explaining

    if (track is None) != (frame is None):
        raise StepvadError(
            "explain: expected --track and --frame together, got one of them",
            hint="give both, or neither for the highest score",
        )
    if output is not None:
        terminal.check_picture(output)
    detector = options.load_detector(model)
    with terminal.progress_bars() as report:
        clips = options.read_poses(poses, format, report)
        # the window of one person that ends in this frame, else the highest of each person
        if track is not None and frame is not None:
            explained = explaining.explain(detector, _only(clips), [(track, frame)])
        else:
            explained = explaining.explain_highest(detector, clips, top, report=report)
    if output is not None:
        from stepvad.report.sheets import draw_explanations

        draw_explanations(explained, output)
        terminal.say(f"drawn to {output}")
    if as_json:
        terminal.print_json([explanation.as_dict() for explanation in explained])
        return
    for explanation in explained:
        _print_explanation(explanation)


def _only(clips: Iterable[stepvad.Clip]) -> stepvad.Clip:
    """The only clip, which --track and --frame refer to."""
    clip, *others = clips
    if others:
        raise StepvadError(
            f"explain: expected one clip with --track and --frame, got {1 + len(others)}",
            hint="give one pose file",
        )
    return clip


def _print_explanation(explanation: stepvad.Explanation) -> None:
    """Print the explanation, its evidence, and the contributions of views and body parts."""
    frames = f"frames {explanation.frames[0]}-{explanation.frames[-1]}"
    echo(f"{explanation.clip}, track {explanation.track}, {frames}")
    for phrase in explanation.words or ("nothing unusual",):
        echo(f"  {phrase}")
    # contributions of views, then of body parts; each table adds up to the score
    if explanation.views:
        echo(f"Score         {explanation.score:.2f}")
        echo(f"Views         {explanation.share_words}")
        echo(f"Nearest       an average of usual motion, which scores {explanation.base:.2f}")
        _print_views(explanation.views)
    else:
        sigmas = ", ".join(f"{sigma:.2f}" for sigma in explanation.scales)
        ghost = "in the normal range" if explanation.ghost_is_normal else "outside the normal range"
        echo(
            f"Score         {explanation.score:.2f}: {explanation.energy:.2f} before a confidence "
            f"of {explanation.confidence:.2f} took {explanation.taken_off:.2f} off\n"
            f"Noise scale   {sigmas} decided\n"
            "Nearest       a normal motion with a highest energy of "
            f"{explanation.ghost_energy:.2f}, {ghost}"
        )
    rows = [
        [part.name, f"{part.contribution:+.2f}", f"{100 * part.share:.0f} %",
         "" if part.name in explanation.meanings else f"{part.first_frame}-{part.last_frame}"]
        for part in explanation.parts
        if not explanation.views or abs(part.contribution) >= SMALLEST
    ]  # fmt: skip
    # the parts and the base add up to the score
    rows.append(["base: the nearest normal motion", f"{explanation.base:+.2f}", "", ""])
    rows.append(["score", f"{explanation.score:+.2f}", "", ""])
    terminal.print_table("", ["part", "adds", "share", "mostly in frames"], rows)


def _print_views(views: Sequence[ViewShare]) -> None:
    """Print what each of several views adds to the score."""
    rows = [
        [view.name, f"{view.contribution:+.2f}",
         f"{100 * view.share:.0f} %" if view.at_hand else "not there for long enough"]
        for view in views
    ]  # fmt: skip
    terminal.print_table("", ["view", "adds", "share"], rows)


@dataclass(frozen=True, slots=True)
class LabelledClip:
    """One clip, and its ground truth if there is one."""

    poses: Annotated[Path, Argument(help="A pose file with one clip.")]
    labels: Annotated[
        Path | None,
        Option(help="Ground truth: a mask of the clip as .npy (1 = abnormal), or its data set."),
    ] = None

    def read(self, format: str, report: Report) -> tuple[stepvad.Clip, NDArray[np.bool_] | None]:
        """The clip, as long as its labels, and the labels `(n_frames,)`."""
        from stepvad.evaluation.datasets import read_truth
        from stepvad.formats import read_people

        with terminal.notes_of("stepvad.formats", once=True):
            clip = read_people(self.poses, format=format, report=report)
        # without labels the clip keeps its own length
        if self.labels is None:
            return clip, None
        abnormal = read_truth(self.labels, clip)
        return clip.with_length(len(abnormal)), abnormal


@options.grouped
def report(
    model: options.ModelFile,
    output: Annotated[Path, Option("-o", "--output", help="The report, as .html.")],
    *,
    threshold: Annotated[
        float | None, Option(help="Event threshold, instead of the calibration's.")
    ] = None,
    camera: options.CalibratedCamera = None,
    labelled: LabelledClip,
    events: Annotated[
        int,
        Option(min=0, max=200, help="Number of events to explain and animate, highest peak first."),
    ] = 20,
    fps: options.FpsOption = None,
    format: options.FormatOption = "auto",
    as_json: options.AsJson = False,
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
    from stepvad.events import calibration
    from stepvad.files import replacing
    from stepvad.report import page, timeline

    terminal.check_output(output, ".html", ".htm")
    detector = options.load_detector(model)
    sha256 = detector.sha256
    with terminal.notes_of("stepvad.events.calibration"):
        rules, promise = calibration.rules_for(model, sha256, threshold=threshold, camera=camera)
    with terminal.progress_bars() as bars:
        clip, abnormal = labelled.read(format, bars)
        rate = clip.rate(fps)
        if threshold is None:
            options.warn_of_rates(model, detector.config, [rate], camera)
        # the report states times: without a rate of its own, the clip has that of --fps
        clip = replace(clip, fps=rate)
        scores = detector.score(clip, report=bars)
        lowered = options.excused(model, detector, camera)(clip, scores)
        incidents = timeline.investigate(detector, clip, lowered, rules, most=events, report=bars)
    html = page.render(
        page.ReportedClip(
            scores=scores,
            fps=rate,
            detector=detector,
            model_name=model.name,
            model_sha256=sha256,
            rules=rules,
            threshold=promise,
            incidents=incidents,
            abnormal=abnormal,
            first_frame=clip.first_frame,
        )
    )
    # a reader of the old page never sees half of the new one
    with replacing(output) as temporary:
        temporary.write_text(html, encoding="utf-8", newline="\n")
    terminal.say(f"events: {len(incidents)}, at scores of {rules.threshold:.3g} or more")
    if as_json:
        found = [incident.event for incident in incidents]
        terminal.print_json({"report": str(output), "threshold": rules.threshold, "events": found})
    else:
        echo(output)


@options.grouped
def overlay(
    model: options.ModelFile,
    output: Annotated[
        Path, Option("-o", "--output", help="Output video as .mp4; stills go beside it.")
    ],
    *,
    video: Annotated[
        Path | None,
        Option(
            help="Video or folder of pictures that the poses come from; without it, drawn on black."
        ),
    ] = None,
    fps: Annotated[
        float | None,
        Option(
            min=0.1,
            max=1000,
            help="Frames per second; defaults to those of the video or the poses, otherwise 25.",
        ),
    ] = None,
    labelled: LabelledClip,
    frames: options.FramePart = ":",
    stills: Annotated[
        int, Option(min=0, help="Number of stills to save as .png, at the highest scores.")
    ] = 0,
    threshold: Annotated[
        float | None,
        Option(
            help="Score at which skeletons are red; defaults to the calibration next to the model, "
            "or the clip's 99.9 % quantile, but at least 3."
        ),
    ] = None,
    format: options.FormatOption = "auto",
) -> None:
    """Draw every person in the colour of their score, with a timeline of all scores below.

    A skeleton is green up to score 0, the training mean, and turns red and thicker above it; grey
    means no score yet. The box has the colour of the track, with the mean confidence of the window
    above it and the score below. Drawn on black, so no camera pixel is kept:

        stepvad overlay model.safetensors clip.parquet -o clip.mp4

    On the video, with stills of the three highest scores:

        stepvad overlay model.safetensors clip.parquet -o clip.mp4 --video clip.avi --stills 3

    With the ground truth shaded:

        stepvad overlay model.safetensors clip.json -o clip.mp4 --labels people
    """
    from stepvad.evaluation import baselines
    from stepvad.video import overlay as overlays
    from stepvad.video import source, timeline

    source.opencv("overlay")
    terminal.check_output(output, ".mp4")
    overlays.check_encoder()
    if threshold is not None and not 0 < threshold < float("inf"):
        raise StepvadError(
            f"--threshold: expected a number above 0, got {threshold}",
            hint="0 is the mean of training, and is drawn green",
        )
    detector = baselines.load(model)
    footage = None if video is None else source.open_footage(video)
    with terminal.progress_bars() as report, terminal.notes_of("stepvad.video"):
        clip, abnormal = labelled.read(format, report)
        pixels = overlays.frame_size(clip, footage)
        first, end = options.frame_range(frames, clip.n_frames)
        span = range(first, end or clip.n_frames)
        # frames per second: the user, the video, the clip, else 25
        stated = footage.fps if isinstance(footage, source.VideoFile) else None
        rate = fps or stated or clip.fps or DEFAULT_FPS
        scores = detector.score(clip, report=report)

        # red begins at the threshold: the user's, else the calibrated one, else the clip's own
        calibrated = None if threshold else options.calibration_of(model)
        red = threshold if calibrated is None else calibrated.threshold.value
        scale = overlays.scale_of(scores, red)
        shown = timeline.ShownFrames(span, rate, abnormal)
        drawn = overlays.Overlay(clip, scores, shown, size=pixels, scale=scale)
        moments = overlays.choose_stills(drawn, span, rate, stills)
        overlays.write(drawn, output, span, moments, video=footage, report=report)
    terminal.say(f"red from {scale.red:.3g}: {scale.meaning}")
    for frame in moments:
        echo(overlays.still_path(output, frame))
    echo(output)
