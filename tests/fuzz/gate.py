"""Damaged files to every reader, and a table of what became of them."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from itertools import count, takewhile
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from tests.fuzz.readers import READERS, mutated
from tests.fuzz.worker import serve

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = (
    "stepvad.archive.shards",
    "stepvad.evaluation.baselines",
    "stepvad.evaluation.boxtracks",
    "stepvad.calibration",
    "stepvad.cli.files",
    "stepvad.cli.score",
    "stepvad.fleet.worker.owned_shard",
    "stepvad.formats.eventlines",
    "stepvad.settings.file",
    "stepvad.site.store.restore",
    "stepvad.video.parts",
    "tests.fuzz.seeds",
)
"""What readers import, but for torch, which one of them needs."""
MEMORY = 1 << 30
"""Bytes by which reading a small file may not grow memory."""
SECONDS = 10.0
"""Of a processor, that reading a small file may not take."""
HANGS_S = 60.0
"""On the clock, after which a worker is ended."""
START_S = 180.0
SUMS = ("files", "bytes", "accepted", "refused", "tracebacks", "crashes", "large", "slow")


@dataclass(slots=True)
class Row:
    """What became of the files of one reader."""

    reader: str
    files: int = 0
    bytes: int = 0
    accepted: int = 0
    refused: int = 0
    tracebacks: int = 0
    crashes: int = 0
    large: int = 0
    slow: int = 0
    slowest_s: float = 0.0
    largest: int = 0
    offenders: list[tuple[str, str]] = field(default_factory=list)
    """Why, and the name of the file that was kept."""

    @property
    def faults(self) -> int:
        """Files that a reader should have refused in time, and did not."""
        return self.tracebacks + self.crashes + self.large + self.slow

    def count(self, facts: dict[str, Any], size: int) -> list[str]:
        """Take in one file; the faults it showed."""
        self.files += 1
        self.bytes += size
        self.slowest_s = max(self.slowest_s, facts["cpu_s"])
        self.largest = max(self.largest, facts["grown"])
        faults = []
        match facts["end"]:
            case "accepted":
                self.accepted += 1
            case "refused":
                self.refused += 1
            case "traceback":
                self.tracebacks += 1
                faults.append("traceback")
            case "crash":
                self.crashes += 1
                faults.append("crash")
        if facts["grown"] > MEMORY:
            self.large += 1
            faults.append("memory")
        if facts["cpu_s"] > SECONDS:
            self.slow += 1
            faults.append("time")
        return faults


class Worker:
    """A process that reads files for one reader."""

    def __init__(self, reader: str, seeds: Path, work: Path) -> None:
        self._errors = work / "stderr"
        self._connection, theirs = server().Pipe()
        self._process = server().Process(
            target=serve, args=(reader, seeds, work, self._errors, theirs), daemon=True
        )
        self._process.start()
        theirs.close()
        ready = self._answer(START_S)
        if ready["end"] != "ready":
            self.close()
            raise RuntimeError(f"{reader}: {ready['end']} {ready.get('detail', '')}")

    def read(self, path: Path) -> dict[str, Any]:
        """What became of a file."""
        self._connection.send(path)
        return self._answer(HANGS_S)

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.join()

    def _answer(self, within_s: float) -> dict[str, Any]:
        began = time.monotonic()
        if not self._connection.poll(within_s):
            return {
                "end": "hang",
                "detail": "no answer",
                "cpu_s": time.monotonic() - began,
                "grown": 0,
            }
        try:
            found: dict[str, Any] = self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(timeout=10)
            words = self._errors.read_bytes()[-800:].decode(errors="replace")
            detail = f"exit code {self._process.exitcode}: {words}"
            return {"end": "crash", "detail": detail, "cpu_s": 0.0, "grown": 0}
        return found


@cache
def server() -> ForkServerContext:
    """Forks processes that have imported all that readers need: it takes longer than they do."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.fuzz.worker", *IMPORTED])
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    settings = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2", "PYTHONPATH": path}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    forkserver.ensure_running()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    return context


def examined(reader: str, data: bytes, name: str, seeds: Path, work: Path) -> dict[str, Any]:
    """What one file does to a reader, in a process of its own."""
    path = work / name
    path.write_bytes(data)
    worker = Worker(reader, seeds, work)
    try:
        return worker.read(path)
    finally:
        worker.close()


def fuzz(reader: str, seeds: Path, *, seed: int, files: Iterator[int], kept: Path) -> Row:
    """Feed a reader as many damaged files as `files` has numbers."""
    row = Row(reader)
    whole = sorted((seeds / reader).iterdir())
    worker: Worker | None = None
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        try:
            for number in files:
                rng = random.Random(f"{seed} {reader} {number}")
                source = rng.choice(whole)
                data = mutated(reader, source, rng)
                path = work / source.name
                path.write_bytes(data)
                worker = worker or Worker(reader, seeds, work)
                facts = worker.read(path)
                faults = row.count(facts, len(data))
                if faults:
                    _keep(row, faults, facts, number, data, source, kept)
                if facts["end"] in ("crash", "hang") or facts["grown"] > MEMORY // 4:
                    worker.close()  # a new one begins with little memory
                    worker = None
        finally:
            if worker is not None:
                worker.close()
    return row


def _keep(
    row: Row,
    faults: Sequence[str],
    facts: dict[str, Any],
    number: int,
    data: bytes,
    source: Path,
    kept: Path,
) -> None:
    kept.mkdir(parents=True, exist_ok=True)
    name = f"{row.reader.replace(' ', '-')}-{number}-{'-'.join(faults)}{source.suffix}"
    (kept / name).write_bytes(data)
    words = f"{facts['detail']}\n{facts['cpu_s']:.1f} s, {facts['grown'] / 1e6:.0f} MB"
    (kept / f"{name}.txt").write_text(words)
    row.offenders.append((", ".join(faults), name))


@dataclass(frozen=True, slots=True)
class Task:
    """Damaged files for one reader: so many, or as many as there are seconds for."""

    reader: str
    seeds: Path
    seed: int
    kept: Path
    files: int | None
    seconds: float

    def run(self) -> Row:
        """Feed them."""
        files = self._numbers() if self.files is None else iter(range(self.files))
        return fuzz(self.reader, self.seeds, seed=self.seed, files=files, kept=self.kept)

    def _numbers(self) -> Iterator[int]:
        until = time.monotonic() + self.seconds
        return takewhile(lambda _: time.monotonic() < until, count())


def run(
    *,
    seed: int,
    files: int | None,
    minutes: float | None,
    kept: Path,
    readers: Sequence[str] = (),
    jobs: int = 1,
    report: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Every reader, `jobs` at a time: so many files in all, or so many minutes."""
    from tests.fuzz import seeds

    chosen = list(readers) or list(READERS)
    each = None if files is None else -(-files // len(chosen))
    seconds = 60 * (minutes or 1) * jobs / len(chosen)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as directory:
        whole = Path(directory) / "seeds"
        seeds.make(whole)
        tasks = [Task(reader, whole, seed, kept, each, seconds) for reader in chosen]
        for row in _done(tasks, jobs):
            rows.append(row)
            report(table([row]).splitlines()[-1])
    return sorted(rows, key=lambda row: chosen.index(row.reader))


def _done(tasks: Sequence[Task], jobs: int) -> Iterator[Row]:
    if jobs == 1:
        yield from (task.run() for task in tasks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for done in as_completed([pool.submit(task.run) for task in tasks]):
            yield done.result()


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| reader | files | bytes | accepted | refused | tracebacks | crashes | above 1 GB "
        "| above 10 s | slowest s | largest MB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    total = Row("all")
    for row in rows:
        for name in SUMS:
            setattr(total, name, getattr(total, name) + getattr(row, name))
        total.slowest_s = max(total.slowest_s, row.slowest_s)
        total.largest = max(total.largest, row.largest)
    for row in [*rows, *([total] if len(rows) > 1 else [])]:
        lines.append(
            f"| {row.reader} | {row.files:,} | {row.bytes:,} | {row.accepted:,} | {row.refused:,} "
            f"| {row.tracebacks} | {row.crashes} | {row.large} | {row.slow} | {row.slowest_s:.2f} "
            f"| {row.largest / 1e6:.0f} |"
        )
    return "\n".join(lines)
