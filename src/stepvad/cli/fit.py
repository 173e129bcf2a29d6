"""stepvad fit and calibrate: learn normal motion, and find a threshold from normal footage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

from typer import Argument, Exit, Option, echo

import stepvad
from stepvad.cli import options, terminal
from stepvad.config import Checkpoint, Compute, Config, DistanceMethod, Method, ViewKind
from stepvad.errors import Report, StepvadError

if TYPE_CHECKING:
    from stepvad.evaluation.baselines import Fitted
    from stepvad.events.calibration import Calibration

DISTANCES = get_args(DistanceMethod)
"""Methods without training."""


@dataclass(frozen=True, slots=True)
class TrainingPoses:
    """Pose files to fit on, and how they are read."""

    poses: Annotated[
        list[Path],
        Argument(
            help="Pose files, directories of them, or data sets, whose training clips are used."
        ),
    ]
    format: options.FormatOption = "auto"
    fps: options.FpsOption = None

    def clips(self, report: Report) -> Iterator[stepvad.Clip]:
        """The training clips of data sets, and all clips of other paths."""
        from stepvad.evaluation.datasets import read_training

        clips = options.with_notes(read_training(self.poses, format=self.format, report=report))
        return (clip.with_rate(self.fps) for clip in clips)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The windows, the projection and the network."""

    T: Annotated[int | None, Option("--T", help="Frames in a window.")] = None
    K: Annotated[int | None, Option("--K", help="Principal components to keep.")] = None
    width: Annotated[int | None, Option(help="Hidden units of the network.")] = None
    views: Annotated[
        str | None,
        Option(help="Views of a window to combine: pose, and optionally motion and place."),
    ] = None
    neighbours: Annotated[int, Option(min=1, help="Neighbours of `knn`.")] = 1
    settings: options.SettingsFile = None


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Length of training, and which epoch to keep."""

    epochs: Annotated[int | None, Option(help="Passes over the training windows.")] = None
    max_steps: Annotated[
        int | None, Option(help="Maximum training steps, regardless of epochs.")
    ] = None
    validation: Annotated[
        Path | None,
        Option(
            help="Labelled data set; keep the epoch with the best AUROC on its validation clips, "
            "or on its test clips if it has none."
        ),
    ] = None
    seed: Annotated[
        int | None,
        Option(
            help="The same seed, poses and number of threads give the same file on one machine."
        ),
    ] = None
    marked: Annotated[
        Path | None,
        Option(metavar="MODEL", help="Fit as this model, also on its events marked as normal."),
    ] = None
    resume: Annotated[bool, Option("--resume", help="Resume an interrupted fit.")] = False
    device: options.Device = "cpu"


@options.grouped
def fit(
    output: Annotated[Path, Option("-o", "--output", help="The model file to write.")] = Path(
        "model.safetensors"
    ),
    *,
    preset: Annotated[
        Literal["footage", "paper"],
        Option(help="`footage`: minutes on two cores; `paper`: the full 400 epochs, hours."),
    ] = "footage",
    method: Annotated[Method, Option(help="STEP, or a baseline.")] = "step",
    source: TrainingPoses,
    model: ModelOptions,
    training: TrainingOptions,
    as_json: options.AsJson = False,
) -> None:
    """Fit (train) a model on pose files that show only normal motion.

    Your own footage, in minutes:

        stepvad fit poses/ -o model.safetensors

    The paper's training (400 epochs; early stopping if you have labelled validation clips):

        stepvad fit ShanghaiTech/pose/train -o st.safetensors --preset paper

    Settings without an option of their own stand in a file, as `learning_rate = 5e-4`:

        stepvad fit UBnormal/pose/train -o ub.safetensors --preset paper --settings ub.toml

    A baseline to compare it with:

        stepvad fit poses/ -o knn.safetensors --method knn

    A model that no longer alerts to the motion of events that were marked as normal:

        stepvad fit poses/ -o better.safetensors --marked model.safetensors

    Ctrl-C keeps the last checkpoint; repeat the command with --resume to continue.
    """
    from stepvad.evaluation import baselines

    terminal.check_output(output)
    before = None if training.marked is None else options.load_detector(training.marked)
    # options override the file, the file overrides the preset
    base = Config() if preset == "paper" else Config.footage()
    config = options.configured(
        base if before is None else before.config,
        model.settings,
        T=model.T,
        K=model.K,
        width=model.width,
        epochs=training.epochs,
        max_steps=training.max_steps,
        seed=training.seed,
    )
    _refuse_idle(method, config, model, training)
    if output.exists():
        terminal.say(f"{output} will be replaced")

    def clips(report: Report) -> Iterator[stepvad.Clip]:
        """The poses, and those of marked events, often enough to matter."""
        yield from source.clips(report)
        if before is not None and training.marked is not None:
            yield from _marked_clips(before, training.marked, report)

    started = time.monotonic()
    compute = Compute(device=training.device)
    fitted: Fitted
    # a distance keeps training windows; all other methods train a network
    if baselines.is_distance(method):
        with terminal.progress_bars() as report:
            fitted = baselines.fit(method, clips(report), config, k=model.neighbours, report=report)
        fitted.save(output)
    elif model.views:
        own = baselines.variant(method, config)
        fitted = _fit_views(clips, output, own, model.views, compute)
    else:
        own = baselines.variant(method, config)
        fitted = _train(clips, output, own, training, compute)
    _print_fitted(fitted, output, time.monotonic() - started, as_json=as_json)


def _refuse_idle(
    method: Method, config: Config, model: ModelOptions, training: TrainingOptions
) -> None:
    """Reject options that have no effect together, rather than ignore them."""
    if config.patience is not None and training.validation is None:
        raise StepvadError(
            "patience: expected --validation with it, got none",
            hint="name a labelled data set to validate on",
        )
    # options that this fit would ignore
    untrained, joined = method in DISTANCES, model.views is not None
    for option, idle in {
        "--validation": training.validation is not None and (untrained or joined),
        "--resume": training.resume and (untrained or joined),
        "--views": joined and method != "step",
        "--neighbours": model.neighbours != 1 and method != "knn",
    }.items():
        if idle:
            raise StepvadError(
                f"{option}: expected a fit that uses it, got --method {method}"
                + " with --views" * joined,
                hint="leave it out, or choose another method",
            )


def _marked_clips(before: stepvad.Detector, model: Path, report: Report) -> Iterator[stepvad.Clip]:
    """Clips of events that were marked as normal, repeated often enough to matter."""
    from stepvad.events import marks
    from stepvad.windows.runs import at_rate

    directory = marks.normal_set_path(model)
    if not directory.is_dir():
        raise StepvadError(
            f"{directory}: expected poses of events marked as normal, got none",
            hint="stepvad calibrate MODEL --marks SITE.toml keeps those of a site",
        )
    read = options.read_poses([directory], "auto", report)
    # at the rate of the model, as its own windows
    clips = [at_rate(clip, before.config) for clip in read]
    yield from marks.repeated(clips, before.origin.windows, before.config.T)


def _train(
    clips: Callable[[Report], Iterator[stepvad.Clip]],
    output: Path,
    config: Config,
    training: TrainingOptions,
    compute: Compute,
) -> stepvad.Detector:
    """Fit one view; after Ctrl-C a checkpoint lies beside the output, for --resume."""
    checkpoint = output.with_name(output.name + ".checkpoint")
    if training.resume and not checkpoint.exists():
        raise StepvadError(
            f"{checkpoint}: expected the checkpoint of an interrupted fit, got no such file",
            hint="start over without --resume",
        )
    # the epoch with the best AUROC on labelled clips is kept; else the last one
    rating = None
    if training.validation is not None:
        from stepvad.evaluation.experiment import auroc_on

        with terminal.notes_of("stepvad.evaluation"):
            rating = auroc_on(training.validation)
    try:
        with terminal.progress_bars() as report:
            detector = stepvad.Detector.fit(
                clips(report),
                config,
                keep_best=rating,
                report=report,
                checkpoint=Checkpoint(checkpoint, training.resume),
                compute=compute,
            )
    except KeyboardInterrupt:
        if checkpoint.exists():
            terminal.say(
                f"stopped; {checkpoint} holds the last checkpoint; add --resume to continue"
            )
        else:
            terminal.say("stopped before the first checkpoint; nothing was saved")
        raise Exit(130) from None
    # the checkpoint goes when the model is on disk
    detector.save(output)
    checkpoint.unlink(missing_ok=True)
    return detector


def _fit_views(
    clips: Callable[[Report], Iterator[stepvad.Clip]],
    output: Path,
    config: Config,
    views: str,
    compute: Compute,
) -> stepvad.Detector:
    """Fit several views of the same windows; their lengths follow from the frame rate."""
    kinds = cast("list[ViewKind]", [kind.strip() for kind in views.split(",")])
    with terminal.progress_bars() as report:
        every = [*clips(report)]
        if not every:
            raise StepvadError("expected clips to fit on, got none", hint="name pose files")
        # windows of other views last as long, in seconds
        joined = config.per_view(kinds, every[0].rate())
        detector = stepvad.Detector.fit(every, joined, report=report, compute=compute)
    detector.save(output)
    return detector


def _print_fitted(fitted: Fitted, output: Path, seconds: float, *, as_json: bool) -> None:
    origin = fitted.origin
    if fitted.config.fps is None:
        terminal.say(
            "warning: the poses state no frame rate, or several; with --fps RATE, footage of "
            "another rate is noticed"
        )
    if as_json:
        facts = {"model": str(output), "seconds": seconds, "origin": origin}
        terminal.print_json(facts)
        return
    trained = f" in {origin.epochs} epochs" if origin.epochs else ""
    terminal.say(
        f"fitted {origin.windows:,} windows of {origin.clips} clips{trained}, {seconds:.0f} s"
    )
    repairs = terminal.repair_words(origin.counts)
    if repairs:
        terminal.say("repaired: " + ", ".join(repairs))
    echo(output)


def calibrate(
    model: options.ModelFile,
    *,
    poses: Annotated[
        list[Path] | None,
        Argument(help="Pose files, or directories of pose files; with --marks not needed."),
    ] = None,
    alerts_per_hour: Annotated[
        float | None, Option(help="False events allowed per camera and hour; one a day is 0.04.")
    ] = None,
    confidence: Annotated[float, Option(help="Confidence level of the promise.")] = 0.95,
    output: Annotated[
        Path | None,
        Option("-o", "--output", help="Calibration file; defaults to a file next to the model."),
    ] = None,
    plot: Annotated[
        Path | None, Option(help="Plot events per hour against the threshold, as .png.")
    ] = None,
    fps: options.FpsOption = None,
    marks: Annotated[
        Path | None,
        Option(metavar="SITE.toml|DATA", help="Update the thresholds with the marks of a site."),
    ] = None,
    format: options.FormatOption = "auto",
    as_json: options.AsJson = False,
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

    Later, update the thresholds with the events that people marked as normal, on a site's page or
    with `stepvad events mark`:

        stepvad calibrate model.safetensors --marks site.toml

    Their poses are kept next to the model, in model.normal/, one file per event.
    """
    if marks is not None:
        if poses or alerts_per_hour is not None:
            raise StepvadError(
                "calibrate: expected --marks alone, got more",
                hint=f"stepvad calibrate {model} --marks SITE.toml",
            )
        _apply_marks(model, marks)
        return
    if not poses or alerts_per_hour is None:
        raise StepvadError(
            "calibrate: expected normal poses and --alerts-per-hour, got one of them",
            hint=f"stepvad calibrate {model} NORMAL_POSES --alerts-per-hour 0.5",
        )
    from stepvad.events import calibration

    where = output or calibration.calibration_path(model)
    for path in filter(None, (where, plot)):
        terminal.check_output(path)

    # each directory or file is a camera
    scored = calibration.ScoredFootage(options.load_detector(model))
    with terminal.progress_bars() as report:
        for path in poses:
            clips = options.read_poses([path], format, report, fps=fps)
            scored.score(options.camera_of(path), clips, fps=fps, report=report)
        made = scored.calibrate(alerts_per_hour=alerts_per_hour, confidence=confidence)
    calibration.write_calibration(made, where)
    if plot is not None:
        from stepvad.report.plots import draw_calibration

        draw_calibration(made, plot)
    if as_json:
        names = ("threshold", "cameras", "rules", "model_sha256")
        terminal.print_json({name: getattr(made, name) for name in names})
    else:
        for sentence in _sentences(made):
            echo(sentence)
    terminal.say(f"written: {where}")


def _sentences(calibration: Calibration) -> Iterator[str]:
    from stepvad.events.threshold import duration

    threshold = calibration.threshold
    yield f"{duration(threshold.hours)} of normal footage, cameras: {len(calibration.counted)}"
    yield f"threshold {threshold.value:.2f}: {threshold.words}"
    # the interval of the true rate, from the events counted here
    low, high = threshold.rate
    yield (
        f"true rate at this threshold: {low:.2g} to {high:.2g} per hour (95 %); "
        f"events in this footage: {threshold.events}"
    )
    yield from _more_footage(calibration)
    for camera in calibration.counted if len(calibration.counted) > 1 else ():
        words = "too little footage; uses the common threshold"
        if (own := calibration.cameras.get(camera)) is not None:
            words = f"threshold {own.value:.2f}: {own.words}"
        yield f"{camera}: {words}"


def _more_footage(calibration: Calibration) -> Iterator[str]:
    """What more footage would buy."""
    from stepvad.events.threshold import duration, hours_for_promise, hours_to_count, strictest

    threshold, (first, *others) = calibration.threshold, calibration.counted.values()
    rate, confidence, hours = threshold.alerts_per_hour, threshold.confidence, threshold.hours
    # how much more footage a promise at this rate takes
    if not threshold.is_promised:
        needed = hours_for_promise(first.joined(others), rate, confidence)
        yield f"a promise of at most {rate:g} per hour needs about {duration(needed)} in total"
    if threshold.how != "counted":
        needed = hours_to_count(rate, confidence)
        yield f"to confirm it by counting takes {duration(needed)} without an event"
    now, later = strictest(hours), strictest(10 * hours)
    yield f"strictest promise: {now:.2g} per hour from this footage, {later:.2g} from ten times it"


def _apply_marks(model: Path, site: Path) -> None:
    """Update the thresholds with marks, and keep the poses of the events that were normal."""
    from stepvad.events import calibration
    from stepvad.events.marks import normal_set_path, recalibrate, update_normal_set
    from stepvad.site import marks as stored
    from stepvad.site.settings.file import data_of

    sha256 = options.load_detector(model).sha256
    with terminal.notes_of("stepvad.site"):
        marks = stored.marks_of(data_of(site), sha256)

    # the poses of false alerts, for the next fit
    directory = normal_set_path(model)
    update_normal_set(directory, marks.clips, marks.not_normal)
    if marks.clips:
        terminal.say(f"written: {directory}, of {len(marks.clips)} events")
    before = options.calibration_of(model, sha256)
    if before is None or not (marks.normal or marks.not_normal):
        terminal.say("the thresholds stay: there is no calibration next to the model, or no mark")
        return

    # thresholds so high that these alerts would not have been raised
    after = recalibrate(before, marks)
    calibration.write_calibration(after, calibration.calibration_path(model))
    echo(f"events marked as normal: {len(after.marked)}")
    echo(f"threshold {before.threshold.value:.2f} -> {after.threshold.value:.2f}")
    for camera, threshold in after.cameras.items():
        was = before.cameras.get(camera, before.threshold).value
        echo(f"{camera}: threshold {was:.2f} -> {threshold.value:.2f}")
