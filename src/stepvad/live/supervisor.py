"""The process that starts the site, and starts it again when it dies."""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from types import FrameType

from stepvad.live.child import RESTART_S, Restarts

logger = logging.getLogger(__name__)

REFUSED = 3
"""Exit code of a site whose settings do not work: it is not started again."""
STOP_S = 20.0


def supervise(command: Sequence[str]) -> int:
    """Run the site until it ends by itself or a signal says so; an exit code.

    Ctrl-C and SIGTERM are passed on, and the site ends in order. What dies of itself is started
    again, up to five times in a minute.
    """
    stopping = threading.Event()
    site: subprocess.Popen[bytes] | None = None

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()
        if site is not None:
            site.terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    restarts = Restarts()
    while True:
        site = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        if stopping.is_set():
            site.terminate()
        code = _wait(site, stopping)
        if stopping.is_set():
            return 0 if code in (0, -signal.SIGTERM) else 1
        if code in (0, REFUSED):
            return 0 if code == 0 else 1
        logger.error("the site ended with code %d", code)
        if not restarts.allow(time.monotonic()):
            logger.error("the site died too often within a minute; it is given up")
            return 1
        stopping.wait(RESTART_S)


def _wait(site: subprocess.Popen[bytes], stopping: threading.Event) -> int:
    """Until the site has ended; by force if it does not, once told to."""
    told: float | None = None
    while True:
        try:
            return site.wait(0.2)
        except subprocess.TimeoutExpired:
            if stopping.is_set():
                told = told or time.monotonic()
                if time.monotonic() - told > STOP_S:
                    logger.error("the site does not end and is killed")
                    site.kill()
