"""Time every scoring engine against the bare matrix products of the network (Supp. C, runtime).

    python -m studies speed --model model.safetensors -o speed.csv --plot speed.png
    python -m studies speed --model model.safetensors --people 100 --threads 1

Timed from raw windows in pixels to aggregated scores. The engines take turns, so a busy machine
slows all of them alike; compare the ratios. The limit is the fastest library's bare products in
the same precision. Everything takes about ten minutes.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from stepvad.cli.terminal import print_table, progress_bars
from stepvad.config import Config, Engine
from stepvad.detector import Detector
from stepvad.errors import Progress, Report, StepvadError, silent
from stepvad.evaluation.walkers import make_clips
from stepvad.files import replacing
from stepvad.model.engines import ENGINES, Folded, import_onnxruntime, import_openvino, usable
from stepvad.model.scoring import View, anomaly_score, standardise_energies
from stepvad.report import plots
from stepvad.windows.body import standardise
from stepvad.windows.runs import cut
from studies.plots.looks import OTHERS

COLUMNS = (
    *("threads", "people", "way", "ms", "low", "high", "windows/s", "of limit"),
    *("of own", "x naive", "MB", "deviation", "rank corr."),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="by default one of the paper's size is fitted")
    parser.add_argument("--people", type=int, nargs="+", default=PEOPLE, help="scored at once")
    parser.add_argument("--threads", type=int, nargs="+", default=THREADS)
    parser.add_argument("--repeats", type=int, default=9, help="readings per figure")
    parser.add_argument("-o", "--output", type=Path, help="results as CSV")
    parser.add_argument("--plot", type=Path, help="plot of the results as .png")
    given = parser.parse_args(arguments)
    with progress_bars() as report, usual_model(given.model, report) as model:
        lines = run(
            model, people=given.people, threads=given.threads, repeats=given.repeats, report=report
        )
    if given.output is not None:
        write_csv(lines, given.output)
    if given.plot is not None:
        _draw(lines, given.plot)
    print_table("from raw windows to scores", COLUMNS, _rows(lines))
    rows = [[str(N), f"{ms:.2f}", f"{N / ms * 1000:.0f}", f"{mb}"] for N, (ms, mb) in PAPER.items()]
    print_table("the paper, on a GTX 1080 (Supp. C)", ["people", "ms", "windows/s", "MB"], rows)


def _rows(lines: Sequence[SpeedResult]) -> list[list[str]]:
    return [
        [
            str(line.threads),
            str(line.people),
            line.subject,
            *(f"{1000 * s:.2f}" for s in _times(line)),
            f"{line.people / line.median_s:.0f}",
            f"{line.of_limit:.2f}",
            *(
                _number(value, places)
                for value, places in (
                    (line.of_own, 2),
                    (line.times_naive, 2),
                    (line.memory_mb, 1),
                    (line.deviation, 6),
                    (line.rank_correlation, 6),
                )
            ),
        ]
        for line in lines
    ]


def _times(line: SpeedResult) -> tuple[float, float, float]:
    return line.median_s, line.low_s, line.high_s


def _number(value: float, places: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{places}f}"


def _draw(lines: Sequence[SpeedResult], path: Path) -> None:

    panels: dict[str, list[Curve]] = {}
    for line in lines:
        panel = panels.setdefault(f"threads: {line.threads}", [])
        curve = next((curve for curve in panel if curve.label == line.subject), None)
        if curve is None:
            curve = Curve(line.subject, line.kind, {})
            panel.append(curve)
        curve.points[line.people] = _times(line)
    draw_speed(panels, {N: ms / 1000 for N, (ms, _) in PAPER.items()}, path)


PEOPLE = (1, 10, 50, 100, 500, 4096)
THREADS = (1, 2)
PAPER = {1: (0.86, 21.5), 10: (0.93, 22.8), 50: (0.97, 32.6), 100: (1.62, 44.9), 500: (7.45, 143.2)}
"""People to milliseconds and megabytes of the paper's implementation on a GTX 1080 (Supp. C)."""
FEW_FROM = 1000
"""From this many windows on, only a third of the readings is taken, but at least three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedResult:
    """Timing of one subject at one number of people and threads, relative to the others."""

    subject: str
    kind: SubjectKind
    precision: str
    threads: int
    people: int
    median_s: float
    """Median time for all windows, in seconds; the quartiles follow."""
    low_s: float
    high_s: float
    of_limit: float
    """Time of the fastest library's bare products in this precision, divided by this time.

    This and the other ratios are medians of the ratios within each round of readings.
    """
    of_own: float
    """The same for the products of its own library."""
    times_naive: float
    """Speed-up over passing every window as L rows through the training network."""
    memory_mb: float
    """Peak memory of model and scoring, excluding the libraries."""
    deviation: float
    """Largest difference from numpy's scores in float32, as a share of their spread."""
    rank_correlation: float
    """Spearman's, with numpy's scores in float32."""


def run(
    model: Path,
    *,
    people: Sequence[int] = PEOPLE,
    threads: Sequence[int] = THREADS,
    repeats: int = 9,
    report: Report = silent,
) -> list[SpeedResult]:
    """Time all subjects for each number of threads and people."""
    lines: list[SpeedResult] = []
    chosen = list(subjects())
    for number in threads:
        lines += compare(model, chosen, people, threads=number, repeats=repeats, report=report)
    return lines


def compare(
    model: Path,
    chosen: Sequence[TimedSubject],
    people: Sequence[int],
    *,
    threads: int = 1,
    repeats: int = 9,
    report: Report = silent,
) -> Iterator[SpeedResult]:
    """Time subjects side by side, each in its own process, taking turns for every reading.

    Load on the machine thus affects all of them alike, and idle threads of one do not slow down
    another.
    """
    x = raw_windows(model, max(people))
    workers = [TimedWorker.start(subject, model, threads) for subject in chosen]
    try:
        for N in sorted(people):
            loaded = [worker.load(x[:N]) for worker in workers]
            rounds = max(3, repeats // 3) if N >= FEW_FROM else repeats
            readings = np.empty((rounds, len(workers)))
            for done in range(rounds):
                report(Progress("timing", done, rounds, f"{N} people, threads: {threads}"))
                readings[done] = [worker.reading() for worker in workers]
            yield from _lines(chosen, N, threads, readings, loaded)
    finally:
        for worker in workers:
            worker.stop()


def _lines(
    chosen: Sequence[TimedSubject],
    N: int,
    threads: int,
    readings: NDArray[np.float64],
    loaded: Sequence[tuple[ScoreArray | None, float]],
) -> Iterator[SpeedResult]:
    """Yield the figures of every subject, relative to the others."""
    quartiles = np.quantile(readings, [0.25, 0.5, 0.75], axis=0).T
    column = {subject: i for i, subject in enumerate(chosen)}
    scores = {subject: A for subject, (A, _) in zip(chosen, loaded, strict=True)}
    limit: dict[str, TimedSubject] = {}
    for subject in sorted(chosen, key=lambda subject: -quartiles[column[subject], 1]):
        if subject.kind == "bare":
            limit[subject.precision] = subject  # the fastest comes last

    def ratio(other: TimedSubject | None, subject: TimedSubject) -> float:
        """The median ratio of another's time to this one's, per reading, to cancel drift."""
        if other not in column:
            return math.nan
        return float(np.median(readings[:, column[other]] / readings[:, column[subject]]))

    for subject, (low, median, high), (A, memory) in zip(chosen, quartiles, loaded, strict=True):
        deviation, correlation = _deviation(A, scores.get(TimedSubject("engine", "numpy")))
        yield SpeedResult(
            subject=subject.name,
            kind=subject.kind,
            precision=subject.precision,
            threads=threads,
            people=N,
            median_s=float(median),
            low_s=float(low),
            high_s=float(high),
            of_limit=ratio(limit.get(subject.precision), subject),
            of_own=ratio(TimedSubject("bare", subject.engine), subject),
            times_naive=ratio(TimedSubject("naive", "numpy"), subject),
            memory_mb=memory,
            deviation=deviation,
            rank_correlation=correlation,
        )


def _deviation(A: ScoreArray | None, reference: ScoreArray | None) -> tuple[float, float]:
    if A is None or reference is None:
        return math.nan, math.nan
    largest = float(np.abs(A - reference).max()) / (float(reference.std()) or 1.0)
    return largest, math.nan if len(A) < 2 else float(spearmanr(A, reference).statistic)


@contextmanager
def usual_model(model: Path | None = None, report: Report = silent) -> Iterator[Path]:
    """The given model, or a trained one of the paper's size: random weights behave differently."""
    if model is not None:
        yield model
        return
    config = replace(Config.short(), width=Config().width, max_steps=200)
    clips = (clip for clip, _ in make_clips(20, seed=0))
    with TemporaryDirectory() as directory:
        path = Path(directory, "model.safetensors")
        Detector.fit(clips, config, report=report).save(path)
        yield path


def write_csv(lines: Sequence[SpeedResult], path: Path) -> None:
    """Write the lines as CSV, atomically."""
    rows = [asdict(line) for line in lines]
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


SubjectKind = Literal["naive", "engine", "bare"]
ScoreArray = NDArray[np.float32]
Energies = Callable[[NDArray[np.float32]], NDArray[np.float32]]
CLIPS = 8
"""Number of walker clips, some of them abnormal, that provide the windows."""


@dataclass(frozen=True, slots=True)
class TimedSubject:
    """Something to time: an engine scoring, its bare products, or the training network."""

    kind: SubjectKind
    engine: Engine

    @property
    def name(self) -> str:
        """Its name in tables."""
        if self.kind == "naive":
            return "naive torch"
        return self.engine if self.kind == "engine" else f"{self.kind} {self.engine}"

    @property
    def precision(self) -> str:
        """Precision of the large products."""
        return "bfloat16" if "bfloat16" in self.engine else "float32"

    def prepare(
        self, detector: Detector, x: NDArray[np.float32]
    ) -> Callable[[], ScoreArray | None]:
        """A function that runs once: raw windows `(N, 2, V, T)` in pixels to A(x), or N products.

        The detector runs on the subject's engine.
        """
        match self.kind:
            case "engine":
                return _scoring(detector, x, detector.network.energies)
            case "naive":
                return _scoring(detector, x, naive_energies(detector.views[0]))
            case "bare":
                return _products(detector, len(x))


def subjects() -> Iterator[TimedSubject]:
    """Yield all subjects available on this machine, the naive one first."""
    if find_spec("torch"):
        yield TimedSubject("naive", "numpy")
    here = [engine for engine in ENGINES if usable(engine)]
    yield from (TimedSubject("engine", engine) for engine in here)
    yield from (TimedSubject("bare", engine) for engine in here)


def raw_windows(model: Path, N: int) -> NDArray[np.float32]:
    """N windows `(N, 2, V, T)` of walkers in pixels, repeated if there are fewer."""
    detector = Detector.load(model, runtime="numpy")
    parts = []
    for clip, _ in make_clips(CLIPS, seed=0, anomalies=True):
        index, _ = cut(clip, detector.view_settings, detector.skeleton)
        poses = index.start[:, None] + np.arange(detector.config.T)
        parts.append(index.keypoints[poses].transpose(0, 3, 2, 1))
    found = np.concatenate(parts)
    chosen = np.linspace(0, len(found), N, endpoint=False).astype(np.int64)
    return np.ascontiguousarray(found[chosen])


def _scoring(
    detector: Detector, x: NDArray[np.float32], energies: Energies
) -> Callable[[], ScoreArray]:
    config, model = detector.config, detector.model

    def run() -> ScoreArray:
        standardised, _ = standardise(x, config)
        E = energies(model.space.project(standardised))
        E = standardise_energies(E, model.energy.E_mean, model.energy.E_var)
        return anomaly_score(E, 1.0, config.aggregation)

    return run


def _products(detector: Detector, N: int) -> Callable[[], None]:
    """A function that computes only the large products of N windows."""
    folded, threads = detector.network.folded, detector.network.threads
    width = len(folded.head)
    rows = np.random.default_rng(0).standard_normal((N, folded.L, width), dtype=np.float32)
    match detector.network.engine:
        case "numpy":
            return lambda: _numpy_products(folded.W, rows.reshape(-1, width))
        case "onnxruntime":
            from stepvad.model.engines import onnxruntime_graph

            run = onnxruntime_graph(products_model(folded), threads)
        case "openvino" | "openvino-bfloat16" as engine:
            from stepvad.model.engines import openvino_graph

            run = openvino_graph(
                products_model(folded), threads, bfloat16=engine == "openvino-bfloat16"
            )
    return lambda: _discard(run([rows]))


def products_model(folded: Folded) -> bytes:
    """Only the large products of the network: an upper bound on the speed of an engine."""
    from stepvad.model.engines import Graph

    graph = Graph()
    rows = "rows"
    for W in folded.W:
        rows = graph.node("MatMul", rows, graph.constant(W.T))
    shape: list[int | str] = ["N", folded.L, len(folded.head)]
    return graph.model({"rows": shape}, {rows: shape})


def _numpy_products(W: NDArray[np.float32], rows: NDArray[np.float32]) -> None:
    for W_i in W:
        rows = rows @ W_i.T


def _discard(_: object) -> None:
    """Discard a result."""


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
        if library in subject.name:
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


def naive_energies(view: View) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """f_θ(π(x), σ_i), `(N, L)`: every window as L rows through the trained network."""
    import torch

    from stepvad.model.energy import Energy

    torch.set_flush_denormal(True)
    f = Energy(view.config)
    f.load_state_dict(
        {name: torch.from_numpy(value) for name, value in view.model.energy.weights.items()}
    )
    sigmas = torch.tensor(view.config.sigmas, dtype=torch.float32)[:, None]

    @torch.inference_mode()
    def energies(pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
        z = torch.from_numpy(pi_x).repeat_interleave(len(sigmas), dim=0)
        return f(z, sigmas.repeat(len(pi_x), 1)).view(len(pi_x), -1).numpy()

    return energies


COLOURS = (*OTHERS[:-1], "#999933", "#882255")
"""Without grey, which is reserved for the paper's figures."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One way to score: number of people to median, lower and upper quartile in seconds."""

    label: str
    kind: str
    points: dict[int, tuple[float, float, float]]


def draw_speed(
    panels: Mapping[str, Sequence[Curve]], paper: Mapping[int, float], path: Path
) -> None:
    """Write a PNG: a panel per number of threads; bare products dotted, the paper grey."""
    figure = plots.new_figure(5.5 * len(panels) + 2.5, 5.5)
    every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, curves) in zip(every, panels.items(), strict=True):
        names = [curve.label.removeprefix("bare ") for curve in curves]
        colour = dict(zip(dict.fromkeys(names), COLOURS * 2, strict=False))
        for curve, name in zip(curves, names, strict=True):
            stroke = ":" if curve.kind == "bare" else "-"
            people = list(curve.points)
            each = [[1000 * s / n for s in times] for n, times in curve.points.items()]
            median, low, high = zip(*each, strict=True)
            axes.plot(people, median, stroke, color=colour[name], label=curve.label, marker=".")
            axes.fill_between(people, low, high, color=colour[name], alpha=0.15, linewidth=0)
        ms = [1000 * s / n for n, s in paper.items()]
        axes.plot(list(paper), ms, "--", color=plots.GREY, label="the paper, GTX 1080")
        axes.set(xscale="log", yscale="log", xlabel="people scored at once")
        axes.set_title(title, loc="left", parse_math=False)
        plots.open_axes(axes)
    every[0].set_ylabel("ms per window")
    every[-1].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")
    plots.save(figure, path, dpi=110)
