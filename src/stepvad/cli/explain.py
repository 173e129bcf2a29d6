"""stepvad explain: why a window scores high, in words, numbers and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.poses import FormatOption, PosesArgument, read_poses
from stepvad.cli.terminal import (
    AsJson,
    ModelFile,
    check_picture,
    print_json,
    print_table,
    progress_bars,
    say,
)
from stepvad.errors import ConfigError, StepvadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stepvad.explain import Explanation, ViewShare
    from stepvad.poses import Clip

SMALLEST = 0.005
"""Contributions below this, which print as 0.00, are left out where there are several views."""
PictureOption = Annotated[
    Path | None, typer.Option("-o", "--output", help="Film strips of the windows, as .png.")
]
TrackId = Annotated[
    int | None, typer.Option(help="Track id of the person to explain, with --frame.")
]
FrameNumber = Annotated[int | None, typer.Option(help="Last frame of the window to explain.")]
Top = Annotated[
    int, typer.Option(min=1, max=20, help="Number of people to explain, highest score first.")
]


def explain(
    model: ModelFile,
    poses: PosesArgument,
    output: PictureOption = None,
    *,
    track: TrackId = None,
    frame: FrameNumber = None,
    top: Top = 1,
    format: FormatOption = "auto",
    as_json: AsJson = False,
) -> None:
    """Explain why a window scores high: which body parts, when, and what would be normal.

    The highest-scoring window of all clips, also as a picture:

        stepvad explain model.safetensors poses/ -o why.png

    The three people with the highest scores, each at their peak:

        stepvad explain model.safetensors poses/ --top 3

    One person at one moment:

        stepvad explain model.safetensors clip.json --track 3 --frame 120

    The contributions of all body parts, plus the base, add up to the score. With several views, so
    do those of the views, and speed, size and place are listed with the body parts.
    """
    from stepvad.detector import Detector
    from stepvad.evaluation import baselines
    from stepvad.explain import explain as explain_places
    from stepvad.explain import explain_highest

    if (track is None) != (frame is None):
        raise StepvadError(
            "explain: expected --track and --frame together, got one of them",
            hint="give both, or neither for the highest score",
        )
    if output is not None:
        check_picture(output)
    detector = baselines.load(model)
    if not isinstance(detector, Detector):
        raise ConfigError(
            f"{model}: expected a model with an energy to explain, got one of distances",
            hint="fit a model of method step",
        )
    with progress_bars() as report:
        clips = read_poses(poses, format, report)
        if track is not None and frame is not None:
            explained = explain_places(detector, _only(clips), [(track, frame)])
        else:
            explained = explain_highest(detector, clips, top, report=report)
    if output is not None:
        from stepvad.plots.explanation import draw_explanations

        draw_explanations(explained, output)
        say(f"drawn to {output}")
    if as_json:
        print_json([explanation.as_dict() for explanation in explained])
        return
    for explanation in explained:
        _print(explanation)


def _only(clips: Iterable[Clip]) -> Clip:
    """The only clip, which --track and --frame refer to."""
    clip, *others = clips
    if others:
        raise StepvadError(
            f"explain: expected one clip with --track and --frame, got {1 + len(others)}",
            hint="give one pose file",
        )
    return clip


def _print(explanation: Explanation) -> None:
    """Print the explanation, its evidence, and the contributions of views and body parts."""
    frames = f"frames {explanation.frames[0]}-{explanation.frames[-1]}"
    typer.echo(f"{explanation.clip}, track {explanation.track}, {frames}")
    for phrase in explanation.words or ("nothing unusual",):
        typer.echo(f"  {phrase}")
    sigmas = ", ".join(f"{sigma:.2f}" for sigma in explanation.scales)
    ghost = "in the normal range" if explanation.ghost_is_normal else "outside the normal range"
    decided = f"Noise scale   {sigmas} decided"
    if explanation.views:
        decided = f"Views         {explanation.share_words}"
    typer.echo(
        f"Score         {explanation.score:.2f}: {explanation.energy:.2f} before a confidence of "
        f"{explanation.confidence:.2f} took {explanation.taken_off:.2f} off\n"
        f"{decided}\n"
        f"Nearest       a normal motion with a highest energy of {explanation.ghost_energy:.2f}, "
        f"{ghost}"
    )
    if explanation.views:
        _print_views(explanation.views)
    rows = [
        [part.name, f"{part.contribution:+.2f}", f"{100 * part.share:.0f} %",
         "" if part.name in explanation.meanings else f"{part.first_frame}-{part.last_frame}"]
        for part in explanation.parts
        if not explanation.views or abs(part.contribution) >= SMALLEST
    ]  # fmt: skip
    rows.append(["base: the nearest normal motion", f"{explanation.base:+.2f}", "", ""])
    rows.append(["score", f"{explanation.score:+.2f}", "", ""])
    print_table("", ["part", "adds", "share", "mostly in frames"], rows)


def _print_views(views: Sequence[ViewShare]) -> None:
    """Print what each of several views adds to the score."""
    rows = [
        [view.name, f"{view.contribution:+.2f}",
         f"{100 * view.share:.0f} %" if view.at_hand else "not there for long enough"]
        for view in views
    ]  # fmt: skip
    print_table("", ["view", "adds", "share"], rows)
