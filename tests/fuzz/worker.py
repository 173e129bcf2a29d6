"""Reads files one after the other, in a process of its own, and tells what each took.

    python -m tests.fuzz.worker READER SEEDS < paths

For every line with a path there is one line of JSON: how it ended, seconds of CPU, and bytes by
which memory grew. A whole file is read first, so that nothing is counted that any file takes.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import resource
import sys
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import click

from stepvad.errors import StepvadError
from tests.fuzz.readers import FAULTY, READERS, RefusalError

BACKSTOP = 4 << 30
"""Bytes that a file may ask for before it gets none, so that the machine lives on."""


def main() -> None:
    """Read what stdin names."""
    name, seeds = sys.argv[1], Path(sys.argv[2])
    reader = (READERS | FAULTY)[name]
    logging.disable()
    warnings.simplefilter("ignore")
    whole = sorted((seeds / name).iterdir())
    work = Path(os.environ.get("TMPDIR", "/tmp")) / f"whole-{os.getpid()}"
    work.mkdir()
    for seed in whole:
        copy = work / seed.name
        copy.write_bytes(seed.read_bytes())
        facts = measured(lambda copy=copy: reader.read(copy, seeds / "shared"))
        if facts["end"] != "accepted":
            facts["end"] = f"whole file {seed.name}: {facts['end']}"
        copy.unlink()
        if facts["end"] != "accepted":
            _say(facts)
            return
    _limit(resource.RLIMIT_AS, _memory("VmSize") + BACKSTOP)
    _say({"end": "ready"})
    for line in sys.stdin:
        path = Path(line.rstrip("\n"))
        _say(measured(lambda path=path: reader.read(path, seeds / "shared")))


def _say(facts: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


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


if __name__ == "__main__":
    main()
