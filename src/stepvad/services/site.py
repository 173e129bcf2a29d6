"""The site process, supervised by `stepvad watch`."""

from __future__ import annotations

import argparse
import sys
import threading
from functools import partial
from pathlib import Path

from stepvad.services.page import serve_page
from stepvad.services.process import run_process
from stepvad.settings.file import load
from stepvad.supervision.logs import set_up
from stepvad.supervision.parent_process import RELOAD, HeartbeatPipe, supervise


def watch(settings: Path) -> int:
    """Run a site until SIGTERM or Ctrl-C; return the exit code."""
    set_up(load(settings).logs)
    return supervise([*_command(), str(settings)])


def watch_demo(data: Path, port: int) -> int:
    """Run a site on the bundled scene until SIGTERM or Ctrl-C; return the exit code."""
    set_up("text")
    return supervise([*_command(), "--demo", str(data), str(port)])


def main() -> None:
    """Run a site until SIGTERM; the exit code tells the supervisor how it ended."""
    parser = argparse.ArgumentParser(prog="stepvad.services.site")
    parser.add_argument("--heartbeat-fd", type=int)
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("place", type=Path, help="settings, or with --demo the data directory")
    parser.add_argument("port", type=int, nargs="?", default=0)
    run_process(_run, parser.parse_args())


def _command() -> list[str]:
    return [sys.executable, "-m", "stepvad.services.site"]


def _run(
    options: argparse.Namespace, stop: threading.Event, parent: HeartbeatPipe | None
) -> list[str]:
    from stepvad.intake import demo
    from stepvad.site.app import Site, alone
    from stepvad.site.editor import SettingsEditor
    from stepvad.site.learning.learner import start_process

    settings = demo.settings(options.place, options.port) if options.demo else load(options.place)
    set_up(settings.logs)
    is_changed = threading.Event()

    def reload() -> None:
        is_changed.set()
        stop.set()

    editor = None if options.demo else SettingsEditor(options.place, settings, reload)
    with alone(settings.data):
        serve = partial(serve_page, editor=editor)
        site = Site(
            settings,
            serve=serve if settings.web.enabled else None,
            rounds=None if options.demo else start_process(options.place),
            reload=reload,
        )
        left = site.run(stop, parent)
    if is_changed.is_set() and not left:
        sys.exit(RELOAD)
    return left


if __name__ == "__main__":
    main()
