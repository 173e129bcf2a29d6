"""stepvad fit: learn normal motion from pose files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, cast, get_args

import typer

from stepvad.cli.groups import grouped
from stepvad.cli.options import Device, FpsOption, ModelOutput, PrecisionName
from stepvad.cli.poses import (
    FormatName,
    FormatOption,
    TrainingPoses,
    read_poses,
    read_training_poses,
)
from stepvad.cli.terminal import (
    AsJson,
    check_output,
    mended_words,
    notes_of,
    print_json,
    progress_bars,
    say,
)
from stepvad.config import Compute, Config, DistanceMethod, Method, View
from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from stepvad.detector import Detector
    from stepvad.evaluation.baselines import Fitted
    from stepvad.poses import Clip
    from stepvad.progress import Report

Value = TypeVar("Value")
Preset = Annotated[
    Literal["footage", "paper"],
    typer.Option(help="`footage`: minutes on two cores; `paper`: the full 400 epochs, hours."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume an interrupted fit.")]
Validation = Annotated[
    Path | None,
    typer.Option(
        help="Labelled data set; keep the epoch with the best AUROC on its validation clips, "
        "or on its test clips if it has none."
    ),
]
MethodName = Annotated[
    Method,
    typer.Option(help="STEP, or a baseline."),
]
DISTANCES = get_args(DistanceMethod)
"""Methods without training."""
RAW: tuple[Method, ...] = ("raw-modulated", "raw")
"""Methods without a projection."""
ProjectionPoses = Annotated[
    list[Path] | None,
    typer.Option(help="Extra poses, possibly abnormal, to fit the projection only."),
]


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The windows, the projection and the network."""

    T: Annotated[int | None, typer.Option("--T", help="Frames in a window.")] = None
    K: Annotated[int | None, typer.Option("--K", help="Principal components to keep.")] = None
    clock: Annotated[
        bool | None,
        typer.Option(
            "--clock/--frames",
            help="Windows in seconds: footage of another frame rate is resampled. Or in frames, "
            "as in the paper.",
        ),
    ] = None
    views: Annotated[
        str | None,
        typer.Option(help="Views of a window to combine: pose, and optionally motion and place."),
    ] = None
    width: Annotated[int | None, typer.Option(help="Hidden units of the network.")] = None
    block_jitter: Annotated[float | None, typer.Option(help="Noise added before every block.")] = (
        None
    )
    profile: Annotated[
        Literal["step", "stgnf"] | None, typer.Option(help="Preprocessing profile.")
    ] = None
    whiten: Annotated[bool, typer.Option(help="Whiten the components.")] = True
    confidence: Annotated[bool, typer.Option(help="Weight by the pose confidence.")] = True


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Length of training, and which epoch to keep."""

    epochs: Annotated[int | None, typer.Option(help="Passes over the training windows.")] = None
    max_steps: Annotated[
        int | None, typer.Option(help="Maximum training steps, regardless of epochs.")
    ] = None
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None
    projection_poses: ProjectionPoses = None
    validation: Validation = None
    patience: Annotated[
        int | None, typer.Option(help="Stop after this many validations without improvement.")
    ] = None
    seed: Annotated[
        int,
        typer.Option(
            help="The same seed, poses and number of threads give the same file on one machine."
        ),
    ] = 0
    resume: Resume = False


@dataclass(frozen=True, slots=True)
class ComputeOptions:
    """Where and how torch computes."""

    device: Device = "cpu"
    precision: PrecisionName = "auto"
    compiled: Annotated[
        bool | None,
        typer.Option(
            "--compile/--no-compile",
            help="Compile the training step; by default only when it pays off.",
        ),
    ] = None


USUAL_MODEL, USUAL_TRAINING = ModelOptions(), TrainingOptions()
USUAL_COMPUTE = ComputeOptions()


@grouped
def fit(
    poses: TrainingPoses,
    output: ModelOutput = Path("model.safetensors"),
    *,
    preset: Preset = "footage",
    method: MethodName = "step",
    format: FormatOption = "auto",
    fps: FpsOption = None,
    model: ModelOptions = USUAL_MODEL,
    neighbours: Annotated[int, typer.Option(min=1, help="Neighbours of `knn`.")] = 1,
    training: TrainingOptions = USUAL_TRAINING,
    compute: ComputeOptions = USUAL_COMPUTE,
    as_json: AsJson = False,
) -> None:
    """Fit a model on pose files that show only normal motion.

    Your own footage, in minutes:

        stepvad fit poses/ -o model.safetensors

    The paper's training (400 epochs; early stopping if you have labelled validation clips):

        stepvad fit ShanghaiTech/pose/train -o st.safetensors --preset paper

        stepvad fit UBnormal/pose/train -o ub.safetensors --preset paper --learning-rate 5e-4

    A baseline to compare it with:

        stepvad fit poses/ -o knn.safetensors --method knn

    Ctrl-C keeps the last checkpoint; repeat the command with --resume to continue.
    """
    config = _config(preset, model, training)
    if training.patience is not None and training.validation is None:
        raise StepvadError(
            "--patience: expected --validation with it, got none",
            hint="name a labelled data set to validate on",
        )
    _refuse_idle(
        method,
        {
            "--projection-poses": bool(training.projection_poses) and method in (*RAW, *DISTANCES),
            "--validation": training.validation is not None and method in DISTANCES,
            "--resume": training.resume and method in DISTANCES,
            "--views": model.views is not None and method != "step",
            "--neighbours": neighbours != 1 and method != "knn",
            "--no-whiten": not model.whiten and method in (*RAW, "mahalanobis"),
        },
    )
    if model.views and (training.validation or training.resume or training.projection_poses):
        raise StepvadError(
            "--views: expected no --validation, --resume or --projection-poses, got one",
            hint="leave them out, or fit a single view",
        )
    check_output(output)
    from stepvad.evaluation import baselines

    started, source = time.monotonic(), _Source(poses, format, fps)
    if baselines.is_distance(method):
        fitted: Fitted = _fit_distance(method, source, output, config, k=neighbours)
    else:
        own = baselines.variant(method, config)
        how = Compute(device=compute.device, precision=compute.precision, compiled=compute.compiled)
        if model.views:
            fitted = _fit_views(source, output, own, model.views, how)
        else:
            fitted = _train(source, output, own, training, compute=how)
    _summary(fitted, output, time.monotonic() - started, as_json=as_json)


def _config(preset: str, model: ModelOptions, training: TrainingOptions) -> Config:
    """The settings of the preset, overridden by the given options."""
    base = Config() if preset == "paper" else Config.footage()
    steps = base.max_steps if training.epochs is None else None
    return replace(
        base,
        T=_given(model.T, base.T),
        K=_given(model.K, base.K),
        clock=_given(model.clock, base.clock),
        width=_given(model.width, base.width),
        epochs=_given(training.epochs, base.epochs),
        max_steps=_given(training.max_steps, steps),
        learning_rate=_given(training.learning_rate, base.learning_rate),
        block_jitter=_given(model.block_jitter, base.block_jitter),
        profile=_given(model.profile, base.profile),
        whiten=model.whiten,
        confidence=model.confidence,
        patience=_given(training.patience, base.patience),
        seed=training.seed,
    )


def _refuse_idle(method: str, given: dict[str, bool]) -> None:
    """Reject options that have no effect with this method, rather than ignore them."""
    for option, idle in given.items():
        if idle:
            raise StepvadError(
                f"{option}: expected a method that uses it, got --method {method}",
                hint="leave it out, or choose another method",
            )


def _given(value: Value | None, default: Value) -> Value:
    """The given value, or the preset's."""
    return default if value is None else value


@dataclass(frozen=True, slots=True)
class _Source:
    """The pose files to fit on, and how they are read."""

    paths: Sequence[Path]
    format: FormatName
    fps: float | None

    def clips(self, report: Report) -> Iterator[Clip]:
        """The clips to fit on."""
        return read_training_poses(self.paths, self.format, report, fps=self.fps)

    def others(self, paths: Sequence[Path], report: Report) -> Iterator[Clip]:
        """The clips of other files, read in the same way."""
        return read_poses(paths, self.format, report, fps=self.fps)


def _fit_distance(
    method: Method, source: _Source, output: Path, config: Config, *, k: int
) -> Fitted:
    """Fit a method without training."""
    from stepvad.evaluation import baselines

    with progress_bars() as report:
        fitted = baselines.fit(method, source.clips(report), config, k=k, report=report)
    fitted.save(output)
    return fitted


def _train(
    source: _Source,
    output: Path,
    config: Config,
    training: TrainingOptions,
    *,
    compute: Compute,
) -> Detector:
    from stepvad.detector import Detector

    checkpoint = output.with_name(output.name + ".checkpoint")
    if training.resume and not checkpoint.exists():
        raise StepvadError(
            f"{checkpoint}: expected the checkpoint of an interrupted fit, got no such file",
            hint="start over without --resume",
        )
    also, rating = training.projection_poses or None, None
    if training.validation is not None:
        from stepvad.evaluation.validation import auroc_on

        with notes_of("stepvad.evaluation"):
            rating = auroc_on(training.validation)
    try:
        with progress_bars() as report:
            detector = Detector.fit(
                source.clips(report),
                config,
                projection_clips=None if also is None else source.others(also, report),
                keep_best=rating,
                report=report,
                checkpoint=checkpoint,
                resume=training.resume,
                compute=compute,
            )
    except KeyboardInterrupt:
        if checkpoint.exists():
            say(f"stopped; {checkpoint} holds the last checkpoint; add --resume to continue")
        else:
            say("stopped before the first checkpoint; nothing was saved")
        raise typer.Exit(130) from None
    detector.save(output)
    checkpoint.unlink(missing_ok=True)
    return detector


def _fit_views(
    source: _Source, output: Path, config: Config, views: str, compute: Compute
) -> Detector:
    """Fit several views of the same windows; their lengths follow from the frame rate."""
    from stepvad.detector import Detector

    kinds = cast("list[View]", [kind.strip() for kind in views.split(",")])
    with progress_bars() as report:
        clips = [*source.clips(report)]
        if not clips:
            raise StepvadError("expected clips to fit on, got none", hint="name pose files")
        joined = config.with_views(kinds, clips[0].rate())
        detector = Detector.fit(clips, joined, report=report, compute=compute)
    detector.save(output)
    return detector


def _summary(fitted: Fitted, output: Path, seconds: float, *, as_json: bool) -> None:
    from dataclasses import asdict

    origin = fitted.origin
    if as_json:
        print_json({"model": str(output), "seconds": seconds, "origin": asdict(origin)})
        return
    trained = f" in {origin.epochs} epochs" if origin.epochs else ""
    say(f"fitted {origin.windows:,} windows of {origin.clips} clips{trained}, {seconds:.0f} s")
    mended = mended_words(origin.counts)
    if mended:
        say("repaired: " + ", ".join(mended))
    typer.echo(output)
