"""stepvad archive: score stored poses."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stepvad.cli.options import ExecutorName, RuntimeName
from stepvad.cli.terminal import AsJson, print_json, print_table, progress_bars, say

archive = typer.Typer(name="archive", no_args_is_help=True, help="Score stored poses.")


@archive.callback()
def _group() -> None:
    """Score stored poses in Parquet."""


@archive.command(no_args_is_help=True)
def score(
    poses: Annotated[str, typer.Argument(help="Poses: a directory, a file or a URL.")],
    output: Annotated[
        str, typer.Option("-o", "--output", help="Output for the scores: a path or URL.")
    ],
    model: Annotated[Path, typer.Option("-m", "--model", help="A model file.")],
    *,
    jobs: Annotated[
        int, typer.Option(min=1, help="Shards to score in parallel, one core each.")
    ] = 1,
    executor: ExecutorName = "processes",
    runtime: RuntimeName = "auto",
    energies: Annotated[
        bool, typer.Option("--energies", help="Also keep the energy at each noise scale.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Treat poses of the same name and size as unchanged.")
    ] = False,
    as_json: AsJson = False,
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
        with progress_bars() as report:
            summary = scoring.score(
                poses,
                output,
                model,
                scoring.ScoreOptions(
                    runtime=runtime, energies=energies, quick=quick, jobs=jobs, executor=executor
                ),
                report=report,
            )
    except KeyboardInterrupt:
        say("interrupted: finished scores are kept; repeat the command to resume")
        raise typer.Exit(130) from None
    if as_json:
        print_json(asdict(summary))
    else:
        columns = ("shards", "kept", "windows", "scored now", "files failed")
        row = [summary.shards, summary.kept, summary.windows, summary.scored, len(summary.failed)]
        print_table(output, columns, [[f"{number:,}" for number in row]])
    for warning in summary.warnings:
        say(f"warning: {warning}")
    for name, reason in summary.failed.items():
        say(f"failed: {name}: {reason}")
    if summary.failed:
        raise typer.Exit(1)
