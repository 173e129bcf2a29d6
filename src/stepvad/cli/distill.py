"""stepvad distill: train a smaller model to reproduce the scores of a larger one."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from stepvad.cli.engine import RuntimeName, load_detector
from stepvad.cli.options import ModelOutput
from stepvad.cli.poses import FormatOption, TrainingPoses, read_training_poses
from stepvad.cli.terminal import ModelFile, check_output, progress_bars, say
from stepvad.errors import MissingExtraError


def distill(
    model: ModelFile,
    poses: TrainingPoses,
    output: ModelOutput = Path("student.safetensors"),
    *,
    profile: Annotated[
        Literal["tiny", "small"], typer.Option(help="`tiny`: fastest; `small`: closest.")
    ] = "tiny",
    width: Annotated[
        int | None, typer.Option(help="Hidden units; defaults to the profile's.")
    ] = None,
    blocks: Annotated[int | None, typer.Option(help="Layers; defaults to the profile's.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, windows and noise.")] = 0,
    runtime: RuntimeName = "fastest",
    format: FormatOption = "auto",
) -> None:
    """Distill a model into a small network, on the poses the model was fitted on.

        stepvad distill model.safetensors poses/ -o tiny.safetensors

    The student is a model like any other: score, evaluate and export accept it.
    """
    try:
        from stepvad import distillation
    except ImportError as error:
        raise MissingExtraError("distill", "train") from error
    check_output(output)
    teacher = load_detector(model)
    student = distillation.PROFILES[profile]
    student = replace(
        student,
        width=width or student.width,
        blocks=blocks or student.blocks,
        steps=steps or student.steps,
        seed=seed,
    )
    started = time.monotonic()
    with progress_bars() as report:
        made = distillation.distill(
            replace(teacher, runtime=runtime),
            read_training_poses(poses, format, report),
            student,
            report=report,
        )
    made.save(output)
    share = made.network.folded.work / teacher.network.folded.work
    say(f"student with {share:.2%} of the work, fitted in {time.monotonic() - started:.0f} s")
    typer.echo(output)
