"""Reads files one after the other, in a process of its own, and tells what each took.

For every path there is one answer: how it ended, seconds of CPU, and bytes by which memory grew. A
whole file is read first, so that nothing is counted that any file takes.
"""

from __future__ import annotations

import io
import logging
import os
import re
import resource
import tempfile
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click

from stepvad.errors import StepvadError
from tests.fuzz.readers import FAULTY, READERS, RefusalError

BACKSTOP = 4 << 30
"""Bytes that a file may ask for before it gets none, so that the machine lives on."""


def serve(name: str, seeds: Path, work: Path, errors: Path, asked: Connection) -> None:
    """Read what comes through the connection, and answer there, until it is closed."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    tempfile.tempdir = str(work)
    reader = (READERS | FAULTY)[name]
    logging.disable()
    warnings.simplefilter("ignore")
    whole = work / f"whole-{os.getpid()}"
    whole.mkdir()
    for seed in sorted((seeds / name).iterdir()):
        copy = whole / seed.name
        copy.write_bytes(seed.read_bytes())
        facts = measured(lambda copy=copy: reader.read(copy, seeds / "shared"))
        copy.unlink()
        if facts["end"] != "accepted":
            asked.send(facts | {"end": f"whole file {seed.name}: {facts['end']}"})
            return
    _limit(resource.RLIMIT_AS, _memory("VmSize") + BACKSTOP)
    asked.send({"end": "ready"})
    with suppress(EOFError):
        while True:
            path = asked.recv()
            asked.send(measured(lambda path=path: reader.read(path, seeds / "shared")))


def measured(read: Any) -> dict[str, Any]:
    """How reading ended, and what it took."""
    size, peak = _memory("VmSize"), _memory("VmPeak")
    _reset_peak()
    resident = _memory("VmRSS")
    began, end, detail = time.process_time(), "accepted", ""
    is_short = False
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            read()
    except (StepvadError, RefusalError, click.ClickException) as error:
        end, detail, is_short = "refused", str(error)[:300], _ran_short(error)
    except BaseException as error:
        import traceback

        end, is_short = "traceback", _ran_short(error)
        detail = "".join(traceback.format_exception(error, limit=-4))[-1500:]
    grown = max(_memory("VmHWM") - resident, 0)
    if _memory("VmPeak") > peak:
        grown = max(grown, _memory("VmPeak") - size)
    if is_short:
        grown = max(grown, BACKSTOP)
    return {"end": end, "detail": detail, "cpu_s": time.process_time() - began, "grown": grown}


def _ran_short(error: BaseException | None) -> bool:
    """Whether an error comes from memory that nobody gave."""
    while error is not None:
        if isinstance(error, MemoryError) or "Unable to allocate" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _memory(name: str) -> int:
    text = Path("/proc/self/status").read_text("ascii")
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _reset_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, hard))
