"""stepvad evaluate: AUROC, AP and EER on labelled clips."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stepvad.cli.terminal import AsJson, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from stepvad.benchmark.protocol import Evaluation, Row

NAMES = {"latest": "online", "center": "centre", "backtrack": "backtrack"}

Model = Annotated[Path, typer.Argument(help="A model file.")]
Data = Annotated[Path, typer.Argument(help="A data set: poses under pose/test, labels under gt.")]


def evaluate(
    model: Model,
    data: Data,
    *,
    split: Annotated[
        Literal["full", "hr", "st", "ub"],
        typer.Option(help="`hr`: human-related anomalies only; `st`, `ub`: the same on MSAD."),
    ] = "full",
    layout: Annotated[
        Literal["auto", "shanghaitech", "ubnormal", "msad", "poselift"],
        typer.Option(help="Layout of the data set."),
    ] = "auto",
    floor: Annotated[
        Literal["global", "per_clip"], typer.Option(help="Score of frames without a person.")
    ] = "global",
    center: Annotated[bool, typer.Option("--center", help="Add the centre placement.")] = False,
    aggregation: Annotated[
        str | None, typer.Option(help="`max`, `sum`, `top2`, `top3`, or the number of one scale.")
    ] = None,
    frame_sigma: Annotated[
        float | None,
        typer.Option(min=0, help="Smoothing in frames; the data set's own by default."),
    ] = None,
    smoothing: Annotated[
        Literal["filled", "scored"] | None,
        typer.Option(help="Smooth after filling in the floor, or the scored frames alone."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a model on labelled clips: AUROC, AP and EER, frames of all clips together.

    Trivial scores stand beside it (the number of persons in a frame, a random number per window):
    what they reach is not the model's merit.

        stepvad evaluate model.safetensors PoseLift

        stepvad evaluate ub.safetensors UBnormal --split hr --json
    """
    from stepvad.benchmark.datasets import open_dataset
    from stepvad.benchmark.protocol import PLACEMENTS, evaluate
    from stepvad.detector import Detector

    detector = Detector.load(model)
    dataset = open_dataset(data, split=split, format=layout)
    dataset = replace(
        dataset,
        frame_sigma=dataset.frame_sigma if frame_sigma is None else frame_sigma,
        smoothing=smoothing or dataset.smoothing,
    )
    with progress_bars() as report:
        result = evaluate(
            detector,
            dataset,
            placements=(*PLACEMENTS, "center") if center else PLACEMENTS,
            floor=floor,
            aggregation=_aggregation(aggregation, detector.config.L),
            report=report,
        )
    if as_json:
        print_json(asdict(result))
        return
    _print_rows(dataset.name, result)
    say(
        f"{result.n_clips} clips, {result.n_frames:,} frames, {result.n_counted:,} counted, "
        f"{result.n_covered['latest']:,} with an online score; {result.n_windows:,} windows, "
        f"{result.flat_windows:,} flat"
    )
    sigmas = f"{dataset.frame_sigma:g} frames ({dataset.person_sigma:g} for each person first)"
    over = "all frames" if dataset.smoothing == "filled" else "the frames with a score"
    say(f"smoothed: by a Gaussian of {sigmas} over {over}; floor: {floor.replace('_', ' ')}")


def _print_rows(name: str, result: Evaluation) -> None:
    """One line per protocol and selection, the trivial scores' AUROC at its end."""
    trivial = {_key(row, row.method): row.auroc for row in result.rows}
    rows = [
        [
            NAMES[row.placement],
            "smoothed" if row.smoothed else "raw",
            row.frames,
            f"{row.n_frames:,}",
            f"{row.n_abnormal:,}",
            *(f"{100 * value:.1f}" for value in (row.auroc, row.ap, row.eer)),
            *(f"{100 * trivial[_key(row, other)]:.1f}" for other in ("persons", "random")),
        ]
        for row in result.rows
        if row.method == "detector"
    ]
    columns = ["protocol", "scores", "frames", "n", "abnormal", "AUROC", "AP", "EER"]
    print_table(f"{name} (%)", [*columns, "persons", "random"], rows)


def _key(row: Row, method: str) -> tuple[str, str, bool, str]:
    return method, row.placement, row.smoothed, row.frames


def _aggregation(
    text: str | None, n_scales: int
) -> Literal["max", "sum", "top2", "top3"] | int | None:
    """The aggregation a user named, checked by the settings themselves."""
    from stepvad.config import Config

    if text is None:
        return None
    value = int(text) if text.isdecimal() else text
    return Config(L=n_scales, aggregation=value).aggregation  # type: ignore[arg-type]  # it checks
