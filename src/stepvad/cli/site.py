"""What the process of a site runs, which `stepvad watch` starts."""

from __future__ import annotations

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
    from stepvad.live.board import Board
    from stepvad.live.sections import Settings
    from stepvad.live.site import Explain, Mark, Page
    from stepvad.live.store import Store

STUCK = 70
"""Exit code of a site that does not go on."""


def main() -> None:
    """Watch what the command line says until SIGTERM; the exit code tells how it ended."""
    from stepvad.live.child import die_with_parent
    from stepvad.live.logs import set_up
    from stepvad.live.supervisor import REFUSED

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    die_with_parent(signal.SIGTERM)  # without its supervisor a site ends, in order
    logger = logging.getLogger(__name__)
    try:
        settings = _settings(sys.argv[1:])
        set_up(settings.logs)
        _run(settings, stop)
    except StepvadError as error:
        say_error(error.problem, error.hint)
        sys.exit(REFUSED)
    except Exception:
        logger.exception("the site cannot go on")
        logging.shutdown()
        os._exit(STUCK)  # threads that hang must not keep it


def _settings(words: list[str]) -> Settings:
    from stepvad.live import demo
    from stepvad.live.settings import load

    if words[0] == "--demo":
        return demo.settings(Path(words[1]), int(words[2]))
    return load(Path(words[0]))


def _run(settings: Settings, stop: threading.Event) -> None:
    from stepvad.live.site import Site, alone

    with alone(settings.data):
        Site(settings, serve=serve_page if settings.web.enabled else None).run(stop)


def serve_page(
    settings: Settings, store: Store, board: Board, token: str, explain: Explain, mark: Mark
) -> Page:
    """The page of a running site."""
    from stepvad.web import create_app, serve

    app = create_app(settings, store, board, token, explain=explain, mark=mark)
    return serve(app, settings.web.host, settings.web.port)


if __name__ == "__main__":
    main()
