"""stepvad benchmark traversal, lowpass, reconstruction, timelines: the pictures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.options import Components, TableFile
from stepvad.cli.tables import write_table
from stepvad.cli.terminal import (
    ModelFile,
    check_matplotlib,
    check_output,
    check_picture,
    print_table,
    progress_bars,
    say,
)
from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

PictureDatasetArgument = Annotated[
    Path, typer.Argument(help="Data set: poses under pose, labels under gt.")
]
PictureOutput = Annotated[Path, typer.Option("-o", "--output", help="Output picture, as .png.")]
Frames = Annotated[int, typer.Option("--T", min=2, help="Frames in a window.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the noise.")]
BOTTLENECKS = (8, 48, 256)
"""Components in the paper's picture: too few, the paper's choice, too many."""
SHOWN_K = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384)
"""Numbers of components in the printed table; a file has them all."""


def traversal(
    data: PictureDatasetArgument,
    output: PictureOutput = Path("traversal.png"),
    *,
    T: Frames = 12,
    K: Components = 48,
) -> None:
    """Draw what the first two principal components do to a standing and to a moving person.

    The components come from the training clips, the people from normal frames of the test clips.
    The unchanged person is grey.

        stepvad benchmark traversal people -o traversal.png
    """
    from stepvad.config import Config
    from stepvad.evaluation import pictures
    from stepvad.evaluation.datasets import open_dataset
    from stepvad.plots.sequences import SequenceRow, draw_sequences

    check_picture(output)
    config, dataset = Config(T=T, K=K), open_dataset(data)
    with progress_bars() as report:
        space, footage = pictures.fit_space(dataset, config, report)
    space = pictures.narrowed(space, K)
    people = pictures.normal_footage(dataset, config, footage.skeleton)
    chosen = pictures.choose_people(people.index, footage.skeleton, space)
    rows = []
    for name, person in zip(("standing", "moving"), chosen, strict=True):
        (still,) = pictures.traverse(space, person.x, 0, [0.0])
        for component in (0, 1):
            moved = pictures.traverse(space, person.x, component, pictures.MULTIPLES)
            rows.append(
                SequenceRow(f"{name}\nPC {component + 1}", moved, still[None].repeat(len(moved), 0))
            )
    columns = ["0 σ" if multiple == 0 else f"{multiple:+g} σ" for multiple in pictures.MULTIPLES]
    caption = f"first, middle and last of {T} frames, light to dark; grey: 0 σ"
    draw_sequences(rows, columns, output, skeleton=footage.skeleton, caption=caption)
    standing, moving = (f"{person.way:.2f}" for person in chosen)
    say(f"in {T} frames, standing goes {standing} heights of the body, moving {moving}")
    typer.echo(output)


def lowpass(
    data: PictureDatasetArgument,
    output: PictureOutput = Path("lowpass.png"),
    *,
    T: Frames = 12,
    K: Annotated[
        list[int] | None, typer.Option("--K", min=1, help="Components; repeatable.")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Draw how a small number of components removes noise from a moving person.

    The noise is Gaussian, on coordinates whose spread in y is 1.

        stepvad benchmark lowpass people -o lowpass.png --K 8 --K 48 --K 256
    """
    from stepvad.config import Config
    from stepvad.evaluation import pictures
    from stepvad.evaluation.datasets import open_dataset
    from stepvad.plots.sequences import SequenceRow, draw_sequences

    check_picture(output)
    config, dataset = Config(T=T), open_dataset(data)
    with progress_bars() as report:
        space, footage = pictures.fit_space(dataset, config, report)
    people = pictures.normal_footage(dataset, config, footage.skeleton)
    rank = len(space.Lambda_K)
    usual = pictures.narrowed(space, min(config.K, rank))
    _, person = pictures.choose_people(people.index, footage.skeleton, usual)
    noises = (0.0, 0.1, 0.2, 0.3, 0.5)
    rows = [
        SequenceRow(
            "noisy\nwindow" if bottleneck is None else f"K = {bottleneck}",
            pictures.low_pass(space, person.x, noises, bottleneck, seed=seed),
        )
        for bottleneck in (None, *(K or [k for k in BOTTLENECKS if k <= rank]))
    ]
    columns = ["no noise" if size == 0 else f"noise {size:g}" for size in noises]
    caption = f"first, middle and last of {T} frames, moved apart; noise per spread of y"
    draw_sequences(rows, columns, output, skeleton=footage.skeleton, caption=caption, apart=1.0)
    typer.echo(output)


def reconstruction(
    data: PictureDatasetArgument,
    output: PictureOutput = Path("reconstruction.png"),
    *,
    T: Frames = 12,
    seed: Seed = 0,
    table: TableFile = None,
) -> None:
    """Draw how well K components reconstruct a window, at several noise levels.

    The error is the mean over all test windows, between the reconstruction of the noisy window and
    the clean one.

        stepvad benchmark reconstruction people -o reconstruction.png --table reconstruction.csv
    """
    from stepvad.config import Config
    from stepvad.evaluation import pictures
    from stepvad.evaluation.datasets import open_dataset
    from stepvad.model.footage import Footage

    check_picture(output)
    if table is not None:
        check_output(table)
    config, dataset = Config(T=T), open_dataset(data)
    with progress_bars() as report:
        space, train = pictures.fit_space(dataset, config, report)
        test = Footage.read((clip for clip, _ in dataset.test_clips()), config, train.skeleton)
        windows = (windows.x for windows in test.batches("errors", report))
        errors = pictures.reconstruction_errors(space, windows, pictures.NOISES, seed=seed)
    _draw_errors(errors, pictures.NOISES, output, f"{dataset.name}, T = {T}")
    columns = ["K", *(f"noise {size:g}" for size in pictures.NOISES)]
    rows = [[str(k + 1), *(f"{e:.6f}" for e in column)] for k, column in enumerate(errors.T)]
    if table is not None:
        write_table(columns, rows, table)
    print_table(
        f"mean squared error of {len(test):,} test windows of {dataset.name}, T = {T}",
        columns,
        [rows[k - 1] for k in sorted({*SHOWN_K, len(rows)}) if k <= len(rows)],
    )


def timelines(
    model: ModelFile,
    data: PictureDatasetArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="Directory for the pictures.")],
    *,
    clips: Annotated[int, typer.Option(min=1, help="Clips to draw.")] = 6,
) -> None:
    """Draw the scores of test clips over time: the best and the worst separated clips.

        stepvad benchmark timelines model.safetensors people -o timelines

    A clip is separated well if its abnormal frames score above its normal ones.
    """
    from stepvad.evaluation import baselines, pictures, protocol
    from stepvad.evaluation.datasets import open_dataset
    from stepvad.formats import file_stem
    from stepvad.plots.timeline import draw_timeline

    check_matplotlib()
    if output.exists() and not output.is_dir():
        raise StepvadError(
            f"{output}: expected a directory, got a file", hint="choose another name"
        )
    output.mkdir(parents=True, exist_ok=True)
    with progress_bars() as report:
        scored = protocol.score_clips(baselines.load(model), open_dataset(data), report=report)
    rows = []
    for place, (clip, auroc) in enumerate(pictures.best_and_worst(scored, clips), start=1):
        name, classes = clip.scores.clip, ", ".join(clip.labels.classes)
        words = f"{name} ({classes})" if classes else name
        picture = output / f"{place}-{file_stem(name)}.png"
        title = f"{words}: AUROC {100 * auroc:.1f} %"
        draw_timeline(clip.scores, picture, abnormal=clip.labels.abnormal, title=title)
        rows.append([f"{100 * auroc:.1f}", name, classes, str(picture)])
    print_table("clips, best first (%)", ["AUROC", "clip", "classes", "picture"], rows)


def _draw_errors(
    errors: NDArray[np.float64], noises: Sequence[float], path: Path, title: str
) -> None:
    import numpy as np

    from stepvad.plots import style
    from stepvad.plots.curves import AxisLabels, Series, draw_curves

    places = np.arange(1.0, errors.shape[1] + 1)
    looks = [
        style.LineStyle(style.OTHERS[number % len(style.OTHERS)]) for number in range(len(noises))
    ]
    series = {
        "no noise" if size == 0 else f"noise {size:g}": Series(
            places, error, np.zeros_like(places), look=look, mark=_lowest(error)
        )
        for size, error, look in zip(noises, errors, looks, strict=True)
    }
    limits = float(errors[-1].min()) / 20, 1.5 * float(errors.max())
    draw_curves(
        series,
        path,
        AxisLabels("components kept, K", "mean squared error", "log2", "log", limits),
        title=f"{title} (dot: lowest error)",
    )


def _lowest(error: NDArray[np.float64]) -> float | None:
    """The K with the lowest error, or None if it is the largest."""
    best = int(error.argmin()) + 1
    return best if best < len(error) else None


PICTURES = (traversal, lowpass, reconstruction, timelines)
"""The commands of this module, for `stepvad benchmark`."""
