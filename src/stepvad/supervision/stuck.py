"""The end of a process that hangs: it says why, if it can, and exits."""

from __future__ import annotations

import faulthandler
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

STUCK = 70
"""Exit code of a process that exits because a part of it hangs or died."""
REPORT_S = 5.0
"""Longest time to log why the process exits: its log may be what hangs."""


def exit_stuck(report: Callable[[], object], end: Callable[[int], object]) -> None:
    """Run `report`, flush the logs, and call `end` with `STUCK`, however long the logs take."""

    def last_words() -> None:
        report()
        logging.shutdown()

    reporting = threading.Thread(target=last_words, name="report", daemon=True)
    with suppress(RuntimeError):  # no thread can be started: exit without a word
        reporting.start()
        reporting.join(REPORT_S)
    end(STUCK)


def dump_threads() -> None:
    """Write where all threads are to standard error, which needs none of their locks."""
    faulthandler.dump_traceback(file=sys.__stderr__ or 2, all_threads=True)


def exit_unless_called_again(within_s: float) -> None:
    """End the process in that time, wherever its threads are, unless this is called again.

    The timer is not Python's: it also ends a process in which native code never gives the GIL back,
    so that no thread runs. It writes where they are to standard error; the exit code is 1.
    """
    with suppress(RuntimeError):  # no thread can be started: no timer until the next call
        faulthandler.dump_traceback_later(within_s, exit=True, file=sys.__stderr__ or 2)


def exit_no_more() -> None:
    """Stop the timer of `exit_unless_called_again`."""
    faulthandler.cancel_dump_traceback_later()
