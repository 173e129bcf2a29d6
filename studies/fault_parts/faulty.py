"""A camera process that does wrong when it is told to; it imports no more than the usual one."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import threading
import time
from pathlib import Path

from stepvad.site import camera_process
from stepvad.site.camera_process import Networks, Source, run_cameras
from stepvad.site.processes import ChildPipe
from stepvad.video import source
from stepvad.video.watching import Watch

PLACE = "STEPVAD_GAPS"
"""Environment variable: the directory that tells a process what to do."""
HIT = "hit"
"""The camera whose stream crashes a decoder."""
CRASHES = 2


def run_faulty(site: ChildPipe, networks: Networks) -> None:
    """Main function of a camera process that does wrong when it is told to."""
    place = Path(os.environ[PLACE])
    take = Source._take

    def crash(self: Source, frame: source.Frame) -> None:
        """As a decoder that a stream crashes."""
        crashes = place / "crash"
        if self.camera.name == HIT and crashes.exists() and crashes.stat().st_size < CRASHES:
            with crashes.open("ab") as file:
                file.write(b"x")
            os.kill(os.getpid(), signal.SIGSEGV)
        take(self, frame)

    def obey() -> None:
        told = place / str(os.getpid())
        while not told.exists():
            time.sleep(0.05)
        match told.read_text():
            case "gil":
                ctypes.PyDLL(None).sleep(600)  # a PyDLL keeps the lock of the interpreter
            case "look":
                Watch.look = lambda *_: time.sleep(600)  # type: ignore[assignment,method-assign]
            case "cut":
                with site._lock:
                    os.write(site._pipe.fileno(), struct.pack("!i", 1000) + b"P")
                    time.sleep(600)
            case "garbled":
                site.send(camera_process.PEOPLE + bytes(20))

    Source._take = crash  # type: ignore[method-assign]
    source.check_file = lambda path: None  # what blocks later than this check is tried, too
    threading.Thread(target=obey, daemon=True).start()
    run_cameras(site, networks)
