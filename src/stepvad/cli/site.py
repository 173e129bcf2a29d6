"""What the process of a site runs, which `stepvad watch` and `stepvad fleet edge` start."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from stepvad.cli.terminal import say_error
from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepvad.intake.status import Board
    from stepvad.settings.sections import Settings
    from stepvad.site.app import Explain, Mark
    from stepvad.site.store.eventstore import Store
    from stepvad.supervision.stages import Page, Supervisor
    from stepvad.supervision.supervisor import HeartbeatPipe

    Run = Callable[[argparse.Namespace, threading.Event, HeartbeatPipe | None], list[str]]


SESSIONS = "sessions"
"""The file beside the data that keeps who is logged in."""


def main() -> None:
    """Watch what the command line says until SIGTERM; the exit code tells how it ended."""
    parser = argparse.ArgumentParser(prog="stepvad.cli.site")
    parser.add_argument("--heartbeat-fd", type=int)
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("place", type=Path, help="settings, or with --demo the data directory")
    parser.add_argument("port", type=int, nargs="?", default=0)
    run_process(_run, parser.parse_args())


def run_process(run: Run, options: argparse.Namespace) -> None:
    """Run a site or an edge as a process that its supervisor can trust to end."""
    from stepvad.site.store.errors import StoreError
    from stepvad.supervision.limits import raise_file_limit
    from stepvad.supervision.process import die_with_parent
    from stepvad.supervision.stages import STUCK
    from stepvad.supervision.supervisor import REFUSED, HeartbeatPipe

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    die_with_parent(signal.SIGTERM)  # without its supervisor a site ends, in order
    raise_file_limit()
    fd = options.heartbeat_fd
    logger = logging.getLogger(__name__)
    try:
        left = run(options, stop, None if fd is None else HeartbeatPipe(fd))
    except StepvadError as error:
        say_error(error.problem, error.hint)
        may_pass = isinstance(error, StoreError) and error.remedy != "give up"
        sys.exit(STUCK if may_pass else REFUSED)
    except Exception:
        logger.exception("the site cannot go on")
        left = ["main"]
    if left:  # threads that hang must not keep the process
        logging.shutdown()
        os._exit(STUCK)


def _run(
    options: argparse.Namespace, stop: threading.Event, parent: HeartbeatPipe | None
) -> list[str]:
    from stepvad.intake import demo
    from stepvad.settings.file import load
    from stepvad.site.app import Site, alone
    from stepvad.supervision.logs import set_up

    settings = demo.settings(options.place, options.port) if options.demo else load(options.place)
    set_up(settings.logs)
    with alone(settings.data):
        site = Site(settings, serve=serve_page if settings.web.enabled else None)
        return site.run(stop, parent)


def serve_page(
    settings: Settings,
    store: Store,
    board: Board,
    token: str,
    explain: Explain,
    mark: Mark,
    supervisor: Supervisor,
) -> Page:
    """The page of a running site."""
    from stepvad.web import bind, create_app

    web = settings.web
    app = create_app(
        settings,
        store,
        board,
        token,
        explain=explain,
        mark=mark,
        health=supervisor,
        session_file=settings.data / SESSIONS,
    )
    return bind(app, web.host, web.port, certificate=web.certificate, key=web.key)


if __name__ == "__main__":
    main()
