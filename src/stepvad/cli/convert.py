"""stepvad convert: pose files from one layout to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepvad.cli.terminal import AsJson, Format, print_json, progress_bars, read_poses
from stepvad.errors import StepvadError

Source = Annotated[Path, typer.Argument(help="A pose file, or a directory of them.")]
Target = Annotated[
    Path, typer.Argument(help="A .parquet file, a .json file for one clip, or a directory.")
]


def convert(
    source: Source,
    target: Target,
    *,
    format: Format = "auto",
    fps: Annotated[float | None, typer.Option(help="Frames per second of the clips.")] = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite poses, most often as Parquet tracks: small, quick, readable by any Parquet tool.

    Many clips into one file, one clip into AlphaPose's layout, one file per clip:

        stepvad convert PoseLift/pose/train train.parquet --fps 15

        stepvad convert clip.parquet clip.json

        stepvad convert train.parquet clips/
    """
    from stepvad.formats import read_clip, write_clip, write_clips
    from stepvad.poses import Clip

    n_clips = n_poses = 0

    def counted(clip: Clip) -> Clip:
        nonlocal n_clips, n_poses
        n_clips, n_poses = n_clips + 1, n_poses + clip.n_poses
        return clip

    if target.suffix.lower() not in ("", ".json", ".parquet"):
        raise StepvadError(
            f"{target}: expected a name that ends in .parquet or .json, or a directory, "
            f"got {target.suffix}",
            hint="choose the suffix of the layout to write",
        )
    if target.suffix.lower() == ".json":
        write_clip(counted(read_clip(source, format=format, fps=fps)), target)
    else:
        with progress_bars() as report:
            clips = read_poses([source], format, report, fps=fps)
            write_clips((counted(clip) for clip in clips), target)
    if as_json:
        print_json({"target": str(target), "clips": n_clips, "poses": n_poses})
    else:
        typer.echo(f"{target}: {n_clips:,} clips, {n_poses:,} poses")
