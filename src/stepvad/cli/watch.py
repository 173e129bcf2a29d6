"""stepvad watch: watch cameras and record events until stopped."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option, echo

from stepvad.cli import options, terminal
from stepvad.errors import ConfigError, StepvadError
from stepvad.site.service import Service
from stepvad.site.stages import set_up

if TYPE_CHECKING:
    from stepvad.site.settings.sections import SiteSettings

DEMO_PORT = 8080


def watch(
    settings: Annotated[
        Path | None, Argument(metavar="SITE.toml", help="Settings file of the site.")
    ] = None,
    *,
    check: Annotated[
        bool, Option("--check", help="Explain the settings, try the cameras, then exit.")
    ] = False,
    send_test: Annotated[
        bool, Option("--send-test", help="With --check: also send people a test message.")
    ] = False,
    demo: Annotated[
        bool, Option("--demo", help="Watch a bundled scene; needs no settings and no camera.")
    ] = False,
    port: Annotated[
        int | None,
        Option(help="With --demo: port of the web page; defaults to 8080 or a free port."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Watch cameras (run a site) and report events when someone moves abnormally.

    Try it without a camera:

        stepvad watch --demo

    Check the settings, send a test message to the people they name, then run until Ctrl-C:

        stepvad watch site.toml --check --send-test

        stepvad watch site.toml

    Events are stored in the data directory, shown on the web page and sent to the configured sinks.
    """
    # exactly one of a file and the demo
    if demo == (settings is not None):
        raise ConfigError(
            f"watch: expected a settings file or --demo, got {'both' if demo else 'neither'}",
            hint="stepvad watch site.toml, or stepvad watch --demo",
        )
    if (send_test or as_json) and not check:
        raise ConfigError(
            "watch: expected --send-test and --json with --check, got them alone",
            hint="stepvad watch site.toml --check --send-test",
        )
    if settings is None:
        raise Exit(_demo(port))
    from stepvad.site.settings.file import load

    if check:
        _check(settings, send_test=send_test, as_json=as_json)
        return
    raise Exit(_run(load(settings), settings))


def _demo(port: int | None) -> int:
    from stepvad.site.demo import settings

    with TemporaryDirectory() as data:
        terminal.say(
            "synthetic scene: people walk, and someone falls every half minute; Ctrl-C stops it"
        )
        # the documented port, unless something else uses it
        with socket.socket() as probe:
            usual = DEMO_PORT if probe.connect_ex(("127.0.0.1", DEMO_PORT)) else 0
        return _run(settings(Path(data), usual if port is None else port))


def _run(settings: SiteSettings, path: Path | None = None) -> int:
    """Run a site until SIGTERM or Ctrl-C; with a file, its page can change its settings."""
    from stepvad.site.app import Site, exclusive_lock
    from stepvad.site.checking import check_method
    from stepvad.site.learning.learner import start_process
    from stepvad.site.settings.file import load
    from stepvad.site.settings.live import SettingsEditor
    from stepvad.web.app import serve_page

    check_method(settings)
    if settings.fleet is not None:
        terminal.check_fleet()

    def run(service: Service) -> list[str]:
        set_up(settings.logs)
        editor = None if path is None else SettingsEditor(path, settings, service.restart)
        serve = partial(serve_page, editor=editor) if settings.web.enabled else None
        rounds = None if path is None else start_process(path)

        def restart() -> None:
            """Restart with the file, unless somebody broke it meanwhile: the site goes on then."""
            if path is not None:
                load(path)
            service.restart()

        # two sites in one directory would mix their events
        with exclusive_lock(settings.data):
            link = None
            if settings.fleet is not None and path is not None:
                from stepvad.fleet.link import Link  # the libraries of the fleet extra

                link = Link(settings, settings.fleet, path)
            site = Site(settings, serve=serve, fleet=link, rounds=rounds, reload=restart)
            if editor is not None:
                editor.apply = site.apply
            return site.run(service.stop, service.beat)

    return Service().run(run)


def _check(path: Path, *, send_test: bool, as_json: bool) -> None:
    """Print whether the settings work, what cameras cost, and how messages fared."""
    from stepvad.site import sinks
    from stepvad.site.checking import check
    from stepvad.site.settings.file import load
    from stepvad.site.trial import try_all

    def sent() -> Iterator[str]:
        """Answers of the services that send messages to people, after a test message."""
        if not settings.sinks.notify:
            raise ConfigError(
                "sinks.notify: expected people to notify, got none in the settings",
                hint='add [[sinks.notify]] with to = ["browsers"] (the guide "Alerts on phones")',
            )
        for name, _, to in sinks.people_sinks(settings.sinks):
            try:
                yield f"ok: {to}: {sinks.send_test(settings, name)}"
            except StepvadError as error:
                yield f"failed: {error}"

    settings, lines = load(path), []
    # lines appear as each check ends: some wait for a camera
    for line in chain(check(settings), try_all(settings), sent() if send_test else ()):
        lines.append(line)
        if not as_json:
            echo(line)
    if as_json:
        states = (line.partition(": ") for line in lines)
        terminal.print_json([{"state": state, "what": what} for state, _, what in states])
    if any(line.startswith("failed: ") for line in lines):
        raise Exit(1)
