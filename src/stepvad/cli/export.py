"""stepvad export: export a model for programs without stepvad."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stepvad.cli.engine import load_detector
from stepvad.cli.terminal import AsJson, ModelFile, check_output, print_json, say


def export(
    model: ModelFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file to write: .onnx, or OpenVINO's .xml.")
    ] = Path("model.onnx"),
    *,
    as_json: AsJson = False,
) -> None:
    """Export a model as one graph: windows in pixels and their confidence in, scores out.

    For ONNX Runtime and other ONNX tools:

        stepvad export model.safetensors -o model.onnx

    For OpenVINO:

        stepvad export model.safetensors -o model.xml

    The graph is tested on synthetic windows before it is written, and its deviation is printed.
    """
    check_output(output)
    fitted = load_detector(model)
    parity = fitted.export(output)
    if as_json:
        print_json({"file": str(output), **asdict(parity)})
        return
    say(
        f"scores of {parity.windows} windows on {parity.engine} deviate by "
        f"{parity.deviation:.1e} at most"
    )
    typer.echo(output)
