"""The site process, supervised by `stepvad watch`."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

from stepvad.services.page import serve_page
from stepvad.services.process import run_process
from stepvad.settings.file import load
from stepvad.supervision.logs import set_up
from stepvad.supervision.parent_process import HeartbeatPipe, supervise


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

    settings = demo.settings(options.place, options.port) if options.demo else load(options.place)
    set_up(settings.logs)
    with alone(settings.data):
        site = Site(settings, serve=serve_page if settings.web.enabled else None)
        return site.run(stop, parent)


if __name__ == "__main__":
    main()
