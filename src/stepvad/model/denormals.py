"""Work with denormals taken for zero: trained networks produce them, and they halve the speed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from stepvad.errors import Progress, Report

T = TypeVar("T")


class InterruptedWorkError(Exception):
    """The caller of the work was interrupted; it sees its own exception, never this one."""


def flushed(work: Callable[[Report], T], report: Report) -> T:
    """Run `work` in a thread that flushes denormals, and so do the helpers that torch gives it.

    The flag is the thread's own and a new thread has it from its parent, so helpers that torch
    started earlier would keep denormals. The report that `work` receives also ends it when the
    caller is interrupted.
    """
    interrupted = threading.Event()

    def report_unless_interrupted(progress: Progress) -> None:
        if interrupted.is_set():
            raise InterruptedWorkError
        report(progress)

    def run() -> T:
        torch.set_flush_denormal(True)
        return work(report_unless_interrupted)

    with ThreadPoolExecutor(1, "flushed") as thread:
        try:
            return thread.submit(run).result()
        except BaseException:
            interrupted.set()
            raise
