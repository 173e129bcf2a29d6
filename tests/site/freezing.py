"""One thread of a running process stopped from outside, while all others go on."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000
"""Wait for threads as well (`__WALL`)."""


def threads(pid: int) -> dict[str, int]:
    """The threads of a process by name, as far as they have one of their own."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[(task / "comm").read_text().strip()] = int(task.name)
        except OSError:
            continue
    return found


@contextmanager
def frozen(pid: int, name: str) -> Iterator[None]:
    """Keep a thread from running until the block or the process is over."""
    release, ready, tracer = threading.Event(), threading.Event(), list[OSError]()

    def trace() -> None:  # the system knows a tracer by its thread
        tid = threads(pid)[name]
        try:
            _ptrace(PTRACE_SEIZE, tid)
            _ptrace(PTRACE_INTERRUPT, tid)
            os.waitpid(tid, WALL)
        except OSError as error:
            tracer.append(error)
            return
        finally:
            ready.set()
        while not release.wait(0.05):
            done, status = os.waitpid(tid, WALL | os.WNOHANG)
            if done and (os.WIFEXITED(status) or os.WIFSIGNALED(status)):
                return  # what a tracer does not wait for never quite ends
        try:
            _ptrace(PTRACE_DETACH, tid)
        except ProcessLookupError:
            return

    thread = threading.Thread(target=trace, daemon=True)
    thread.start()
    ready.wait(10)
    if tracer:
        raise tracer[0]
    try:
        yield
    finally:
        release.set()
        thread.join(10)


def _ptrace(request: int, tid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(request, tid, None, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
