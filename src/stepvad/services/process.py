"""Process setup shared by site and edge: signals, heartbeat and exit codes."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable

from stepvad.errors import StepvadError
from stepvad.site.store.errors import StoreError
from stepvad.supervision.limits import raise_file_limit
from stepvad.supervision.parent_process import REFUSED, HeartbeatPipe
from stepvad.supervision.process import die_with_parent
from stepvad.supervision.stuck import STUCK, exit_stuck

logger = logging.getLogger(__name__)

RunService = Callable[[argparse.Namespace, threading.Event, HeartbeatPipe | None], list[str]]
"""Runs until the event is set; returns the names of stages that did not stop."""


def stop_on_signals() -> threading.Event:
    """An event that is set on SIGTERM or SIGINT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def run_process(run: RunService, options: argparse.Namespace) -> None:
    """Run a site or an edge; the exit code tells the supervisor how it ended."""
    stop = stop_on_signals()
    die_with_parent(signal.SIGTERM)  # shut down cleanly if the supervisor dies
    raise_file_limit()
    fd = options.heartbeat_fd
    try:
        left = run(options, stop, None if fd is None else HeartbeatPipe(fd))
    except StepvadError as error:
        hint = f"\n\nhint: {error.hint}" if error.hint else ""
        sys.stderr.write(f"error: {error.problem}{hint}\n")
        may_pass = isinstance(error, StoreError) and error.remedy != "give up"
        sys.exit(STUCK if may_pass else REFUSED)
    except Exception:
        logger.exception("the site cannot continue")
        left = ["main"]
    if left:  # hanging threads must not keep the process alive
        exit_stuck(lambda: None, os._exit)
