"""stepvad fit: learn normal motion from pose files."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from stepvad.cli.poses import Format, FormatName, TrainingPoses, read_training_poses
from stepvad.cli.terminal import (
    AsJson,
    check_output,
    mended_words,
    print_json,
    progress_bars,
    say,
)
from stepvad.config import Config
from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepvad.detector import Detector

Value = TypeVar("Value")
Output = Annotated[Path, typer.Option("-o", "--output", help="The model file to write.")]
Preset = Annotated[
    Literal["footage", "paper"],
    typer.Option(help="`footage`: minutes on two cores; `paper`: its full 400 epochs, hours."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from an interrupted fit.")]
Validation = Annotated[
    Path | None,
    typer.Option(
        help="A labelled data set; the epoch with the best AUROC on its validation clips, or if it "
        "has none on its test clips, is kept."
    ),
]


def fit(
    poses: TrainingPoses,
    output: Output = Path("model.safetensors"),
    *,
    preset: Preset = "footage",
    format: Format = "auto",
    T: Annotated[int | None, typer.Option("--T", help="Frames in a window.")] = None,
    K: Annotated[int | None, typer.Option("--K", help="Principal components kept.")] = None,
    width: Annotated[int | None, typer.Option(help="Hidden units of the network.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training windows.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Steps, whatever the epochs.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
    block_jitter: Annotated[float | None, typer.Option(help="Noise before every block.")] = None,
    profile: Annotated[
        Literal["step", "stgnf"] | None, typer.Option(help="Preprocessing profile.")
    ] = None,
    validation: Validation = None,
    patience: Annotated[int | None, typer.Option(help="Validations without a better one.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed and poses give the same file.")] = 0,
    resume: Resume = False,
    as_json: AsJson = False,
) -> None:
    """Learn normal motion from pose files that show nothing else.

    Your own footage, in minutes:

        stepvad fit poses/ -o model.safetensors

    The paper's training (400 epochs; early stopping if you have labelled validation clips):

        stepvad fit ShanghaiTech/pose/train -o st.safetensors --preset paper

        stepvad fit UBnormal/pose/train -o ub.safetensors --preset paper --learning-rate 5e-4

    Ctrl-C keeps the training so far; the same command with --resume goes on from there.
    """
    base = Config() if preset == "paper" else Config.footage()
    config = replace(
        base,
        T=_given(T, base.T),
        K=_given(K, base.K),
        width=_given(width, base.width),
        epochs=_given(epochs, base.epochs),
        max_steps=_given(max_steps, base.max_steps if epochs is None else None),
        learning_rate=_given(learning_rate, base.learning_rate),
        block_jitter=_given(block_jitter, base.block_jitter),
        profile=_given(profile, base.profile),
        patience=_given(patience, base.patience),
        seed=seed,
    )
    if patience is not None and validation is None:
        raise StepvadError(
            "--patience: expected --validation beside it, got none",
            hint="name a labelled data set to validate on",
        )
    check_output(output)
    _fit(
        poses, output, config, format=format, validation=validation, resume=resume, as_json=as_json
    )


def _given(value: Value | None, default: Value) -> Value:
    """What the user gave, or else the preset's."""
    return default if value is None else value


def _fit(
    poses: list[Path],
    output: Path,
    config: Config,
    *,
    format: FormatName,
    validation: Path | None,
    resume: bool,
    as_json: bool,
) -> None:
    from stepvad.detector import Detector

    checkpoint = output.with_name(output.name + ".checkpoint")
    if resume and not checkpoint.exists():
        raise StepvadError(
            f"{checkpoint}: expected the checkpoint of an interrupted fit, got no such file",
            hint="start anew without --resume",
        )
    started = time.monotonic()
    try:
        with progress_bars() as report:
            detector = Detector.fit(
                read_training_poses(poses, format, report),
                config,
                keep_best=_rating(validation),
                report=report,
                checkpoint=checkpoint,
                resume=resume,
            )
    except KeyboardInterrupt:
        if checkpoint.exists():
            say(f"stopped; {checkpoint} keeps the training so far; --resume goes on from there")
        else:
            say("stopped before the first checkpoint; nothing was kept")
        raise typer.Exit(130) from None
    detector.save(output)
    checkpoint.unlink(missing_ok=True)
    _summary(detector, output, time.monotonic() - started, as_json=as_json)


def _rating(validation: Path | None) -> Callable[[Detector], float] | None:
    """Online smoothed AUROC on a data set's validation clips, or on its test clips."""
    if validation is None:
        return None
    from stepvad.benchmark.datasets import open_dataset
    from stepvad.benchmark.protocol import evaluate

    dataset = open_dataset(validation)
    if dataset.validation is None:
        say(f"{dataset.name} has no validation clips: its test clips choose the epoch")
    else:
        dataset = dataset.validation()
    return lambda detector: evaluate(detector, dataset, placements=["latest"]).row().auroc


def _summary(detector: Detector, output: Path, seconds: float, *, as_json: bool) -> None:
    from dataclasses import asdict

    origin = detector.model.origin
    if as_json:
        print_json({"model": str(output), "seconds": seconds, "origin": asdict(origin)})
        return
    say(
        f"fitted {origin.windows:,} windows of {origin.clips} clips "
        f"in {origin.epochs} epochs, {seconds:.0f} s"
    )
    mended = mended_words(origin.counts)
    if mended:
        say("mended: " + ", ".join(mended))
    typer.echo(output)
