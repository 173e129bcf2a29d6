"""Options that several commands of the benchmark share."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

PlacementName = Annotated[
    Literal["latest", "center", "backtrack"], typer.Option(help="As evaluate.")
]
Smoothed = Annotated[bool, typer.Option(help="Smooth as the data set does.")]
FrameNames = Annotated[
    Literal["all", "covered", "one-person"], typer.Option(help="Frames measured on.")
]
SplitName = Annotated[
    Literal["full", "hr", "st", "ub", "validation"],
    typer.Option(
        help="`hr`: human-related anomalies only; `st`, `ub`: the same on MSAD; "
        "`validation`: the clips to choose settings with."
    ),
]
Width = Annotated[int, typer.Option(help="Hidden units of the network.")]
MaxSteps = Annotated[int, typer.Option(help="Steps of training.")]
LearningRate = Annotated[float, typer.Option(help="Peak learning rate.")]
Seeds = Annotated[int, typer.Option(min=1, help="Fits of each method that learns.")]
Jobs = Annotated[int, typer.Option(min=1, help="Fits at a time.")]
ExecutorName = Annotated[
    Literal["processes", "ray"], typer.Option(help="Where fits run: here, or on a cluster.")
]
