"""stepvad watch: watch cameras and record events until stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepvad.cli.terminal import say
from stepvad.errors import ConfigError
from stepvad.files.temporary import temporary_directory

DEMO_PORT = 8080


def watch(
    settings: Annotated[
        Path | None, typer.Argument(metavar="SITE.toml", help="Settings file of the site.")
    ] = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Explain and test the settings, then exit.")
    ] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Watch a bundled scene; needs no settings and no camera.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(help="With --demo: port of the web page; defaults to 8080 or a free port."),
    ] = None,
) -> None:
    """Watch cameras and report events when someone moves abnormally.

    Try it without a camera:

        stepvad watch --demo

    Check the settings, then run until Ctrl-C:

        stepvad watch site.toml --check

        stepvad watch site.toml

    Events are stored in the data directory, shown on the web page and sent to the configured sinks.
    """
    if demo == (settings is not None):
        raise ConfigError(
            f"watch: expected a settings file or --demo, got {'both' if demo else 'neither'}",
            hint="stepvad watch site.toml, or stepvad watch --demo",
        )
    if settings is None:
        raise typer.Exit(_demo(DEMO_PORT if port is None else port, exact=port is not None))
    if check:
        _check(settings)
        return
    from stepvad.services import site

    raise typer.Exit(site.watch(settings))


def _demo(port: int, *, exact: bool) -> int:
    from stepvad.services.site import watch_demo

    with temporary_directory() as data:
        say("synthetic scene: people walk, and someone falls every half minute; Ctrl-C stops it")
        return watch_demo(data, port if exact or _is_free(port) else 0)


def _is_free(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _check(path: Path) -> None:
    from stepvad.settings.file import describe, load
    from stepvad.site.checking import check

    settings = load(path)
    typer.echo(describe(settings))
    for line in check(settings):
        typer.echo(line)
