"""Time one subject in its own process: threads, memory and time."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Timer
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.errors import StepvadError
from stepvad.evaluation.speed.subjects import ScoreArray, TimedSubject
from stepvad.model.runtime.telemetry import import_onnxruntime, import_openvino

SHORTEST_S = 0.02
"""Minimum duration of a reading; calls are repeated until they take this long."""
ANSWER_S = 900.0
"""Time for an answer; 4,096 people on one thread take some seconds."""
STOP_S = 10.0
"""Time to exit before a process is killed."""
STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True, eq=False)
class TimedWorker:
    """A process that receives windows, and times them on each request."""

    subject: TimedSubject
    process: BaseProcess
    pipe: Connection
    answer_s: float = ANSWER_S

    @classmethod
    def start(cls, subject: TimedSubject, model: Path, threads: int) -> Self:
        """Start a process whose numpy, torch and engine use this many threads."""
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, subject, model, threads), daemon=True)
        before = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = str(threads)
        try:
            process.start()
        finally:
            del os.environ["OMP_NUM_THREADS"]
            if before is not None:
                os.environ["OMP_NUM_THREADS"] = before
        theirs.close()
        return cls(subject, process, ours)

    def load(self, x: NDArray[np.float32]) -> tuple[ScoreArray | None, float]:
        """Set the raw windows `(N, 2, V, T)` to time; return their scores, and memory in MB."""
        return self._ask(x)

    def reading(self) -> float:
        """Time all windows once; in seconds."""
        return self._ask(None)

    def stop(self) -> None:
        """Close the pipe and wait for the process to exit; kill it if it does not."""
        self.pipe.close()
        self.process.join(STOP_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def _ask(self, request: NDArray[np.float32] | None) -> Any:
        """The answer to a request; a process that does not answer is killed."""
        deadline = time.monotonic() + self.answer_s
        late = Timer(self.answer_s, self.process.kill)  # sending blocks, too, if nobody receives
        late.start()
        try:
            self.pipe.send(request)
            return self.pipe.recv()
        except (EOFError, OSError) as error:
            reason = "none" if time.monotonic() >= deadline else "a process that ended"
            raise StepvadError(
                f"{self.subject.name}: expected an answer within {self.answer_s:g} s, got {reason}",
                hint="time fewer people, or check the installation of its library",
            ) from error
        finally:
            late.cancel()


def work(pipe: Connection, subject: TimedSubject, model: Path, threads: int) -> None:
    """Serve timing requests until the pipe closes."""
    quiet = {"onnxruntime": import_onnxruntime, "openvino": import_openvino}
    for library in ("onnx", "onnxruntime", "openvino", "torch"):
        if library in subject.engine:
            quiet.get(library, lambda name=library: import_module(name))()
    before = _restart_peak()
    detector = Detector.load(model, runtime=subject.engine, threads=threads)
    run: Callable[[], object] = _nothing  # until windows arrive
    calls = 1
    while True:
        try:
            x = pipe.recv()
        except EOFError:
            return
        if x is None:
            pipe.send(_reading(run, calls))
            continue
        run = subject.prepare(detector, x)
        pipe.send((run(), _resident_mb("VmHWM") - before))
        calls = max(1, math.ceil(SHORTEST_S / _reading(run, 1)))


def _nothing() -> None:
    """Do nothing."""


def _reading(run: Callable[[], object], calls: int) -> float:
    """Average time of one call, in seconds."""
    begin = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - begin) / calls


def _restart_peak() -> float:
    """Reset peak memory and return resident memory in MB; NaN if the system does not report it."""
    if RESET.exists():
        RESET.write_text("5")
    return _resident_mb("VmRSS")


def _resident_mb(name: str) -> float:
    """Resident memory in MB, now (`VmRSS`) or at its peak (`VmHWM`)."""
    if not STATUS.exists():
        return math.nan
    (kilobytes,) = re.findall(rf"^{name}:\s+(\d+) kB$", STATUS.read_text("utf-8"), re.MULTILINE)
    return int(kilobytes) / 1000
