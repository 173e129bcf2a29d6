"""stepvad watch: watch cameras and record events until stopped."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option, echo

from stepvad.cli import options, terminal
from stepvad.errors import ConfigError, MissingExtraError, StepvadError
from stepvad.files import temporary_directory
from stepvad.site.service import Service
from stepvad.site.stages import set_up

if TYPE_CHECKING:
    from stepvad.site.settings.sections import SiteSettings

DEMO_PORT = 8080
NEEDED = {"pydantic": "live", "pyarrow": "live", "fastapi": "web", "uvicorn": "web"}
"""Libraries of the demo, and their extras."""


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
    model: Annotated[
        str | None, Option(help="Go back to this model that the site has learned, from `inspect`.")
    ] = None,
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

    Go back to an earlier model of a site that learns; restart a site that runs:

        stepvad inspect site.toml

        stepvad watch site.toml --check --model 20261117T030012Z

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

    if model is not None:
        from stepvad.site.learning.versions import Versions

        Versions(load(settings).data).use(model)
        terminal.say(f"the site uses {model} from its next start on")
    if check:
        _check(settings, send_test=send_test, as_json=as_json)
        return
    raise Exit(_run(load(settings), settings))


def _demo(port: int | None) -> int:
    for library, extra in NEEDED.items():
        if importlib.util.find_spec(library) is None:
            raise MissingExtraError("watch --demo", extra)
    if port is not None and not _is_free(port):
        raise ConfigError(
            f"port {port}: expected a free port, got one in use",
            hint="choose another --port, or leave it out",
        )
    from stepvad.site.demo import settings

    with temporary_directory() as data:
        terminal.say(
            "synthetic scene: people walk, and someone falls every half minute; Ctrl-C stops it"
        )
        # the documented port, unless something else uses it
        usual = DEMO_PORT if _is_free(DEMO_PORT) else 0
        return _run(settings(data, usual if port is None else port))


def _run(settings: SiteSettings, path: Path | None = None) -> int:
    """Run a site until SIGTERM or Ctrl-C; with a file, its page can change its settings."""
    from stepvad.site.app import Site, exclusive_lock
    from stepvad.site.learning.learner import start_process
    from stepvad.site.settings.file import load
    from stepvad.site.settings.live import SettingsEditor
    from stepvad.web.app import serve_page

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
            site = Site(settings, serve=serve, rounds=rounds, reload=restart)
            if editor is not None:
                editor.apply = site.apply
            return site.run(service.stop, service.beat)

    return Service().run(run)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return port == 0 or probe.connect_ex(("127.0.0.1", port)) != 0


def _check(path: Path, *, send_test: bool, as_json: bool) -> None:
    """Print what the settings say, whether they work, what cameras cost, and how messages fared."""
    from stepvad.site import sinks
    from stepvad.site.checking import check
    from stepvad.site.settings.file import describe, load
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
    if not as_json:
        echo(describe(settings))
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
