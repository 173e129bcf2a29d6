"""stepvad archive: score stored poses."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option, Typer

from stepvad.cli import options, terminal
from stepvad.executors import Executor

archive = Typer(name="archive", no_args_is_help=True, help="Score stored poses.")


@archive.callback()
def _group() -> None:
    """Score stored poses in Parquet."""


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """The work on each shard, and where shards are scored."""

    jobs: Annotated[int, Option(min=1, help="Shards to score in parallel, one core each.")] = 1
    executor: Annotated[
        Executor, Option(help="Where to run: local processes, or a Ray cluster.")
    ] = "processes"
    runtime: options.RuntimeName = "auto"
    energies: Annotated[
        bool, Option("--energies", help="Also keep the energy at each noise scale.")
    ] = False
    quick: Annotated[
        bool, Option("--quick", help="Treat poses of the same name and size as unchanged.")
    ] = False


@archive.command(no_args_is_help=True)
@options.grouped
def score(
    poses: Annotated[str, Argument(help="Poses: a directory, a file or a URL.")],
    output: Annotated[str, Option("-o", "--output", help="Output for the scores: a path or URL.")],
    model: Annotated[Path, Option("-m", "--model", help="A model file.")],
    *,
    shards: ShardOptions,
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
            chosen = scoring.ScoreOptions(**asdict(shards))
            summary = scoring.score(poses, output, model, chosen, report=report)
    except KeyboardInterrupt:
        terminal.say("interrupted: finished scores are kept; repeat the command to resume")
        raise Exit(130) from None
    if as_json:
        terminal.print_json(asdict(summary))
    else:
        columns = ("shards", "kept", "windows", "scored now", "files failed")
        row = [summary.shards, summary.kept, summary.windows, summary.scored, len(summary.failed)]
        terminal.print_table(output, columns, [[f"{number:,}" for number in row]])
    # failures last, next to the exit code
    for warning in summary.warnings:
        terminal.say(f"warning: {warning}")
    for name, reason in summary.failed.items():
        terminal.say(f"failed: {name}: {reason}")
    if summary.failed:
        raise Exit(1)
