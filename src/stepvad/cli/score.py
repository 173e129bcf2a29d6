"""stepvad score: anomaly scores of pose files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.terminal import (
    AsJson,
    Format,
    check_output,
    print_json,
    print_table,
    progress_bars,
    read_poses,
)
from stepvad.errors import MissingExtraError, StepvadError

if TYPE_CHECKING:
    from stepvad.scoring import Scores

Model = Annotated[Path, typer.Argument(help="A model file.")]
Poses = Annotated[list[Path], typer.Argument(help="Pose files, or directories of them.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="Frame scores as CSV.")]
Plot = Annotated[
    Path | None,
    typer.Option(help="A timeline as .png; for several clips a directory that gets one each."),
]


def score(
    model: Model,
    poses: Poses,
    output: Output = None,
    *,
    plot: Plot = None,
    format: Format = "auto",
    as_json: AsJson = False,
) -> None:
    """Score every frame: how far from normal its most unusual person moves. Higher is stranger.

    The strangest moment of every clip:

        stepvad score model.safetensors poses/

    Every frame as CSV, and a picture:

        stepvad score model.safetensors clip.json -o scores.csv --plot scores.png
    """
    from stepvad.detector import Detector

    if output is not None:
        check_output(output)
    if plot is not None:
        _check_plot(plot)
    detector = Detector.load(model)
    with progress_bars() as report:
        scored = [detector.score(clip, report=report) for clip in read_poses(poses, format, report)]
    if output is not None:
        _write_csv(scored, output)
    if plot is not None:
        _plot(scored, plot)
    if as_json:
        print_json([_as_json(scores) for scores in scored])
    else:
        _print_moments(scored)


def _print_moments(scored: list[Scores]) -> None:
    """The highest score of every clip, where and who."""
    rows = []
    for scores in scored:
        windows = scores.windows
        moment = ["-", "-", "-"]
        if len(windows):
            top = int(windows.A.argmax())
            moment = [f"{windows.A[top]:.2f}", f"{windows.frame[top]}", f"{windows.track_id[top]}"]
        covered = len(set(windows.frame.tolist()))
        rows.append([scores.clip, f"{scores.n_frames:,}", f"{covered:,}", *moment])
    columns = ["clip", "frames", "scored", "highest", "at frame", "track"]
    print_table("highest score of each clip", columns, rows)


def _as_json(scores: Scores) -> dict[str, object]:
    windows = scores.windows
    return {
        "clip": scores.clip,
        "frames": scores.frames.tolist(),
        "windows": {
            "track": windows.track_id.tolist(),
            "frame": windows.frame.tolist(),
            "confidence": windows.c.tolist(),
            "score": windows.A.tolist(),
        },
    }


def _write_csv(scored: list[Scores], path: Path) -> None:
    lines = ["clip,frame,score"]
    for scores in scored:
        lines += [
            f"{scores.clip},{frame},{'' if value != value else f'{value:.6g}'}"
            for frame, value in enumerate(scores.frames.tolist())
        ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _check_plot(path: Path) -> None:
    """Refuse a plot that could not be drawn, before the work and not after it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("plot", "plots")
    if path.is_dir():
        return
    check_output(path)
    if path.suffix.lower() != ".png":
        raise StepvadError(
            f"{path}: expected a name that ends in .png, or a directory that exists",
            hint="name the picture, or make the directory first",
        )


def _plot(scored: list[Scores], path: Path) -> None:
    from stepvad.plots.timeline import draw_timeline

    if path.is_dir():
        for scores in scored:
            draw_timeline(scores, path / f"{scores.clip}.png")
    elif len(scored) == 1:
        draw_timeline(scored[0], path)
    else:
        raise StepvadError(
            f"{path}: expected a directory for the plots of {len(scored)} clips, got a file name",
            hint="make a directory and give its name",
        )
