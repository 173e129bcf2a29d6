"""Options of the event commands, for sites and fleets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from stepvad.errors import ConfigError

AGO = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Units of relative times, in seconds."""

SiteDataOption = Annotated[Path, typer.Option("--data", "-d", help="Data directory of the site.")]
Here = Path("site-data")
Fleet = Annotated[
    Path | None,
    typer.Option("--fleet", metavar="FLEET.toml", help="Use the database of a fleet instead."),
]
CameraOption = Annotated[str | None, typer.Option(help="Only events of this camera.")]
AnyCamera = Annotated[
    str | None,
    typer.Option(
        "--camera",
        help="Only events of this camera; in a fleet SITE/CAMERA, or SITE/ for all of it.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(help="Only events since this time: 2026-05-01T14:00, or 2d, 3h, 10m, 30s ago."),
]
Until = Annotated[
    str | None, typer.Option(help="Only events before this time, written as for --since.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
Scrub = Annotated[
    bool,
    typer.Option("--scrub", help="In a fleet: rewrite the table, to leave no trace in its files."),
]
EventIdArgument = Annotated[str, typer.Argument(help="Event id.")]


def time_of(text: str | None, option: str) -> float | None:
    """A time in unix seconds, parsed from a date or a time before now."""
    if text is None:
        return None
    amount, unit = text[:-1], text[-1:]
    if unit in AGO and amount.replace(".", "", 1).isdecimal():
        return (datetime.now(UTC) - timedelta(seconds=float(amount) * AGO[unit])).timestamp()
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ConfigError(
            f"{option}: expected a time, got {text!r}",
            hint="2026-05-01, 2026-05-01T14:00, or 2d, 3h, 10m, 30s before now",
        ) from None


def ask(question: str) -> None:
    """Ask the user for confirmation, and exit if the answer is no."""
    if not typer.confirm(question, err=True):
        raise typer.Abort
