"""stepvad convert: convert pose files from one layout to another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.options import FpsOption
from stepvad.cli.poses import FormatOption, read_poses
from stepvad.cli.terminal import AsJson, print_json, progress_bars
from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from stepvad.poses import Clip

SourceArgument = Annotated[Path, typer.Argument(help="Pose file, or a directory of pose files.")]
TargetArgument = Annotated[
    Path, typer.Argument(help="A .parquet file, a .json file for one clip, or a directory.")
]


def convert(
    source: SourceArgument,
    target: TargetArgument,
    *,
    format: FormatOption = "auto",
    fps: FpsOption = None,
    as_json: AsJson = False,
) -> None:
    """Convert pose files, usually to Parquet tracks: small, fast, readable by any Parquet tool.

    Many clips to one file, one clip to AlphaPose's format, one file per clip:

        stepvad convert PoseLift/pose/train train.parquet --fps 15

        stepvad convert clip.parquet clip.json

        stepvad convert train.parquet clips/
    """
    if target.suffix.lower() not in ("", ".json", ".parquet"):
        raise StepvadError(
            f"{target}: expected a name that ends in .parquet or .json, or a directory, "
            f"got {target.suffix}",
            hint="choose the suffix of the layout to write",
        )
    counted = {"clips": 0, "poses": 0}
    with progress_bars() as report:
        clips = read_poses([source], format, report, fps=fps, distinct=True)
        _write(_counted(clips, counted), target)
    if as_json:
        print_json({"target": str(target), **counted})
    else:
        typer.echo(f"{target}: {counted['clips']:,} clips, {counted['poses']:,} poses")


def _counted(clips: Iterator[Clip], counted: dict[str, int]) -> Iterator[Clip]:
    for clip in clips:
        counted["clips"] += 1
        counted["poses"] += clip.n_poses
        yield clip


def _write(clips: Iterator[Clip], target: Path) -> None:
    from stepvad.formats import write_clip, write_clips

    if target.suffix.lower() != ".json":
        write_clips(clips, target)
        return
    first, *more = clips
    if more:
        raise StepvadError(
            f"{target}: expected one clip for a .json file, got {1 + len(more)}",
            hint="write them to a .parquet file or a directory",
        )
    write_clip(first, target)
