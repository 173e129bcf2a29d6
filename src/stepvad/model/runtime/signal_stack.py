"""Keeps the stack on which a thread handles signals, which OpenVINO replaces by its own."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class _Stack(ctypes.Structure):
    """`stack_t` of Linux."""

    _fields_ = (
        ("start", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("size", ctypes.c_size_t),
    )


@contextmanager
def kept_signal_stack() -> Iterator[None]:
    """Put the signal stack of this thread back on exit.

    OpenVINO sets one while it loads its CPU plugin and frees it with the last model, possibly in
    another thread. The next signal to this thread, such as a Ctrl-C, would then crash the process.
    """
    if sys.platform != "linux":
        yield
        return
    before, library = _Stack(), ctypes.CDLL(None)
    library.sigaltstack(None, ctypes.byref(before))
    try:
        yield
    finally:
        library.sigaltstack(ctypes.byref(before), None)
