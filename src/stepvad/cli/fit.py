"""stepvad fit and calibrate: learn normal motion, and find a threshold from normal footage."""

from __future__ import annotations

import re
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
        Option(help="Views of `usual`: pose, and optionally motion and place."),
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
    method: Annotated[
        Method, Option(help="STEP, the nearest `usual` motion, or a baseline.")
    ] = "step",
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

    By the nearest usual motion, in seconds and without torch, as sites do:

        stepvad fit poses/ -o model.safetensors --method usual --views pose,motion

    Settings without an option of their own stand in a file, as `learning_rate = 5e-4`:

        stepvad fit UBnormal/pose/train -o ub.safetensors --preset paper --settings ub.toml

    A baseline to compare it with:

        stepvad fit poses/ -o knn.safetensors --method knn

    Ctrl-C keeps the last checkpoint; repeat the command with --resume to continue.
    """
    from stepvad.evaluation import baselines

    terminal.check_output(output)
    # options override the file, the file overrides the preset
    base = Config() if preset == "paper" else Config.footage()
    config = options.configured(
        base,
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

    started = time.monotonic()
    compute = Compute(device=training.device)
    fitted: Fitted
    # distances keep training windows or averages of them; all other methods train a network
    if baselines.is_distance(method) or method == "usual":
        kinds = cast("list[ViewKind]", re.split(r" *, *", model.views or "pose,motion"))
        with terminal.progress_bars() as report:
            fitted = baselines.fit(
                method, source.clips(report), config, k=model.neighbours, views=kinds, report=report
            )
        fitted.save(output)
    else:
        own = baselines.variant(method, config)
        fitted = _train(source.clips, output, own, training, compute)
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
    untrained = method in (*DISTANCES, "usual")
    for option, idle in {
        "--validation": training.validation is not None and untrained,
        "--resume": training.resume and untrained,
        "--views": model.views is not None and method != "usual",
        "--T": model.T is not None and method == "usual",
        "--K": model.K is not None and method == "usual",
        "--neighbours": model.neighbours != 1 and method != "knn",
    }.items():
        if idle:
            raise StepvadError(
                f"{option}: expected a fit that uses it, got --method {method}",
                hint="leave it out, or choose another method",
            )


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
    poses: Annotated[list[Path], Argument(help="Pose files, or directories of pose files.")],
    *,
    alerts_per_hour: Annotated[
        float,
        Option(help="Events of a camera in an hour that are to raise alerts; 0.04: one a day."),
    ],
    strict: Annotated[
        bool, Option("--strict", help="At most so many, 95 % sure; takes days and misses more.")
    ] = False,
    output: Annotated[
        Path | None,
        Option("-o", "--output", help="Calibration file; defaults to a file next to the model."),
    ] = None,
    plot: Annotated[
        Path | None, Option(help="Plot events per hour against the threshold, as .png.")
    ] = None,
    fps: options.FpsOption = None,
    format: options.FormatOption = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Find the threshold for an alert budget, from normal footage alone.

    Use footage that the model was not fitted on:

        stepvad calibrate model.safetensors monday/ --alerts-per-hour 0.5

    An event starts when someone stays above the threshold for a while, and includes anything soon
    after. About so many events of footage like this exceed the threshold. Each directory is one
    camera with a threshold of its own; directories with the same name are the same camera:

        stepvad calibrate model.safetensors door/ hall/ --alerts-per-hour 0.1 --plot rates.png

    A budget is no promise. With `--strict`, events are counted until at most so many an hour are
    95 % sure; the command says how much footage that takes.
    """
    from stepvad.events import calibration

    where = output or calibration.calibration_path(model)
    for path in filter(None, (where, plot)):
        terminal.check_output(path)

    # each directory or file is a camera
    detector, scored = options.load_detector(model), calibration.ScoredFootage()
    with terminal.progress_bars() as report:
        for path in poses:
            clips = options.read_poses([path], format, report, fps=fps)
            scored.score(detector, options.camera_of(path), clips, fps=fps, report=report)
        made = scored.calibrate(detector.sha256, alerts_per_day=24 * alerts_per_hour, strict=strict)
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
    from stepvad.events.threshold import duration, often, upper_bound

    threshold, cameras = calibration.threshold, calibration.ledgers
    yield f"{duration(threshold.hours)} of normal footage, cameras: {len(cameras)}"
    yield f"threshold {threshold.value:.2f}: {threshold.words}"
    if threshold.how == "ranked":
        rate = threshold.alerts_per_hour
        needed = duration(upper_bound(0) / rate)
        yield f"at most {often(rate)} (--strict) takes {needed} without an event"
    for camera in cameras if len(cameras) > 1 else ():
        words = "too little footage for a threshold of its own"
        if (own := calibration.cameras.get(camera)) is not None:
            words = f"threshold {own.value:.2f}: {own.words}"
        yield f"{camera}: {words}"
