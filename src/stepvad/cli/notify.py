"""stepvad notify: test the messages that people get."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

notify = typer.Typer(no_args_is_help=True, help="Test messages to people.")


@notify.callback()
def _notify() -> None:
    """Test messages to people."""


@notify.command("test")
def send(
    settings: Annotated[Path, typer.Argument(metavar="SITE.toml", help="Settings of the site.")],
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Name under [[sinks.notify]], if there are several."),
    ] = None,
) -> None:
    """Send a test message now, and print what each service answered.

        stepvad notify test site.toml

        stepvad notify test site.toml guards

    Quiet hours and limits do not apply. Exits with 1 if a service did not accept the message.
    """
    from stepvad.settings.file import load
    from stepvad.site.notifications.people import people, send_test

    site = load(settings)
    failed = False
    for result in send_test(site, people(site, name)):
        failed |= not result.ok
        typer.echo(f"ok: {result.to}: {result.words}" if result.ok else f"failed: {result.words}")
    if failed:
        raise typer.Exit(1)
