"""stepvad archive: score stored poses, and fit on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option, Typer, echo

from stepvad.cli import options, terminal
from stepvad.config import Config
from stepvad.executors import Executor

archive = Typer(name="archive", no_args_is_help=True, help="Score stored poses, and fit.")


@archive.callback()
def _group() -> None:
    """Score stored poses in Parquet, and fit a model on them."""


Jobs = Annotated[int, Option(min=1, help="Shards to work on in parallel, one core each.")]
Where = Annotated[Executor, Option(help="Where to run: local processes, or a Ray cluster.")]


@archive.command(no_args_is_help=True)
def score(
    poses: Annotated[str, Argument(help="Poses: a directory, a file or a URL.")],
    output: Annotated[str, Option("-o", "--output", help="Output for the scores: a path or URL.")],
    model: Annotated[Path, Option("-m", "--model", help="A model file.")],
    *,
    jobs: Jobs = 1,
    executor: Where = "processes",
    runtime: options.RuntimeName = "auto",
    energies: Annotated[
        bool, Option("--energies", help="Also keep the energy at each noise scale.")
    ] = False,
    quick: Annotated[
        bool, Option("--quick", help="Treat poses of the same name and size as unchanged.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Score an archive of poses, resuming where an earlier run stopped.

        stepvad archive score poses -o scores --model model.safetensors --jobs 4

    Poses are track files in directories like date=2026-05-01/camera=yard, or any others; each score
    file goes to the same directory below SCORES. Existing scores of the same poses and model are
    kept. Unreadable poses do not stop the run: they are listed at the end, and the command fails.

    The ray executor uses the cluster that RAY_ADDRESS names, otherwise this machine only. All
    machines of a cluster must see POSES, SCORES and MODEL in the same place.
    """
    from stepvad.archive import scoring

    try:
        with terminal.progress_bars() as report:
            chosen = scoring.ScoreOptions(
                jobs=jobs, executor=executor, runtime=runtime, energies=energies, quick=quick
            )
            summary = scoring.score(poses, output, model, chosen, report=report)
    except KeyboardInterrupt:
        terminal.say("interrupted: finished scores are kept; repeat the command to resume")
        raise Exit(130) from None
    if as_json:
        terminal.print_json(summary)
    else:
        columns = ("shards", "kept", "windows", "scored now", "files failed")
        row = [summary.shards, summary.kept, summary.windows, summary.scored, len(summary.failed)]
        terminal.print_table(output, columns, [[f"{number:,}" for number in row]])
    for warning in summary.warnings:
        terminal.say(f"warning: {warning}")
    _report_failed(summary.failed)


@archive.command(no_args_is_help=True)
def fit(
    poses: Annotated[str, Argument(help="Poses: a directory or a URL.")],
    output: Annotated[Path, Option("-o", "--output", help="The model file to write.")],
    *,
    alerts_per_hour: Annotated[
        float,
        Option(help="Events of a camera in an hour that are to raise alerts; 0.04: one a day."),
    ] = 0.04,
    megabytes: Annotated[
        float, Option(min=1, help="Most pose files to fit on, and to calibrate on, in megabytes.")
    ] = 200.0,
    jobs: Jobs = 1,
    executor: Where = "processes",
    settings: options.SettingsFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit a model on an archive of normal poses, and calibrate it on files that it did not see.

        stepvad archive fit s3://bucket/poses -o model.safetensors --jobs 4

    Of each camera, one in three blocks of consecutive files is held out. The calibration is written
    next to the model. Unreadable files are left out: they are listed at the end, and the command
    fails.

    Jobs read and score files; the model is trained by this command. The ray executor is that of
    `archive score`: all machines of a cluster must see POSES and the model in the same place.
    """
    from stepvad.archive import fitting

    terminal.check_output(output)
    config = options.configured(Config.footage(), settings)
    with terminal.progress_bars() as report:
        chosen = fitting.FitOptions(
            alerts_per_hour=alerts_per_hour, megabytes=megabytes, jobs=jobs, executor=executor
        )
        made = fitting.fit(poses, output, config, chosen, report=report)
    origin, threshold = made.detector.origin, made.calibration.threshold
    if as_json:
        facts = {"model": str(output), "origin": asdict(origin), "threshold": asdict(threshold)}
        own = {name: asdict(one) for name, one in made.calibration.cameras.items()}
        terminal.print_json({**facts, "cameras": own, "failed": made.failed})
    else:
        echo(f"fitted {origin.windows:,} windows of {origin.clips:,} clips")
        cameras, with_own = len(made.calibration.ledgers), len(made.calibration.cameras)
        echo(f"cameras: {cameras:,}, with a threshold of their own: {with_own:,}")
        echo(f"threshold {threshold.value:.2f}: {threshold.words}")
    _report_failed(made.failed)


def _report_failed(failed: Mapping[str, str]) -> None:
    """Name the files that failed, last, next to the exit code."""
    for name, reason in failed.items():
        terminal.say(f"failed: {name}: {reason}")
    if failed:
        raise Exit(1)
