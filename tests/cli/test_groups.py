"""Options that a command takes as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from stepvad.cli.groups import grouped


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option(help="How wide.")]
    height: Annotated[int, typer.Option("--height", "-y", help="How high.")] = 2


@dataclass(frozen=True)
class Pen:
    colour: Annotated[str, typer.Option(help="Of the line.")] = "black"


RED = Pen("red")
app = typer.Typer()


@app.command()
@grouped
def draw(
    name: Annotated[str, typer.Argument()], *, size: Size, pen: Pen = RED, twice: bool = False
) -> None:
    """Draw something."""
    typer.echo(f"{name} {size.width}x{size.height} {pen.colour} {twice}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["box", "--width", "3"], "box 3x2 red False"),
        (["box", "--width", "3", "-y", "4", "--colour", "blue", "--twice"], "box 3x4 blue True"),
    ],
)
def test_every_field_is_an_option_and_the_value_has_them_all(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.output.strip()) == (0, said)


def test_a_field_without_a_default_is_needed() -> None:
    done = CliRunner().invoke(app, ["box"])
    assert done.exit_code == 2
    assert "--width" in done.output


def test_help_names_every_option_and_no_group() -> None:
    words = CliRunner().invoke(app, ["--help"]).output
    assert all(word in words for word in ("Draw something.", "--width", "--colour", "How high."))
    assert "--size" not in words
    assert "--pen" not in words
