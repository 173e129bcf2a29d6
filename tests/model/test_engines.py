"""The network on every engine gives what numpy gives, and engines say nothing."""

from __future__ import annotations

import logging
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from stepvad.config import Engine
from stepvad.detector import Detector
from stepvad.errors import ConfigError, MissingExtraError
from stepvad.model import engines
from stepvad.model.engines import ENGINES, ROWS, choose, import_openvino, threads_of, usable
from stepvad.windows.views import Windows

HERE = [engine for engine in ENGINES if usable(engine)]
FLOAT32 = [engine for engine in HERE if "-" not in engine]
BFLOAT16 = [engine for engine in HERE if "bfloat16" in engine]

Trained = Callable[..., Detector]


def on(detector: Detector, engine: Engine) -> Detector:
    return detector.with_engine(engine, 1)


def some(windows: Windows, rows: slice | NDArray[np.int64]) -> Windows:
    return windows.part(np.arange(len(windows))[rows])


@pytest.mark.parametrize("kind", ["step", "vanilla", "raw", "one block"])
@pytest.mark.parametrize("engine", FLOAT32)
def test_float32_gives_the_scores_of_numpy(
    engine: Engine, kind: str, trained: Trained, test_windows: Windows
) -> None:
    detector = trained(kind)
    expected, got = (d.score_windows(test_windows).A for d in (detector, on(detector, engine)))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * expected.std())


@pytest.mark.parametrize(
    ("kind", "correlation"),
    # energies of raw coordinates vary little beside their size, so rounding reorders neighbours
    [("step", 0.999), ("vanilla", 0.999), ("raw", 0.99)],
)
@pytest.mark.parametrize("engine", BFLOAT16)
def test_bfloat16_ranks_as_numpy_does(
    engine: Engine, kind: str, correlation: float, trained: Trained, test_windows: Windows
) -> None:
    detector = trained(kind)
    expected, got = (d.score_windows(test_windows).A for d in (detector, on(detector, engine)))
    assert spearmanr(got, expected).statistic >= correlation
    assert top_overlap(got, expected) >= 0.94  # one of the 19 highest may change places
    assert np.abs(got - expected).max() > 1e-6 * expected.std()  # it is not float32 in disguise


def top_overlap(A: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Share of the highest hundredth of the scores that two runtimes have in common."""
    n = max(1, round(len(reference) / 100))
    ours, theirs = (np.argpartition(scores, -n)[-n:] for scores in (A, reference))
    return len(np.intersect1d(ours, theirs)) / n


@pytest.mark.parametrize("engine", HERE)
def test_a_window_has_the_same_score_in_every_batch(
    engine: Engine, trained: Trained, test_windows: Windows
) -> None:
    detector = on(trained(), engine)
    together = detector.views[0].energies(some(test_windows, slice(0, 2 * ROWS + 3)))
    spread = np.sqrt(detector.model.energy.E_var)
    tolerance = 0.05 if "-" in engine else 1e-5 * np.abs(together / spread).max()
    assert detector.views[0].energies(some(test_windows, slice(0))).shape == (0, detector.config.L)
    for rows in (slice(0, 1), slice(5, 6), slice(3, 3 + ROWS), slice(ROWS - 1, ROWS + 1)):
        alone = detector.views[0].energies(some(test_windows, rows))
        np.testing.assert_allclose(alone / spread, together[rows] / spread, atol=tolerance)


@pytest.mark.parametrize("engine", HERE)
def test_threads_share_a_detector(engine: Engine, trained: Trained, test_windows: Windows) -> None:
    detector = on(trained(), engine)
    parts = [some(test_windows, slice(i, i + 40)) for i in range(0, 400, 40)]
    expected = [detector.score_windows(part).A for part in parts]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            got = pool.map(lambda part: detector.score_windows(part).A, parts)
            for one, other in zip(got, expected, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("engine", HERE)
def test_scores_stay_as_they_are_when_later_windows_are_scored(
    engine: Engine, trained: Trained, test_windows: Windows
) -> None:
    detector = on(trained(), engine)
    first = detector.views[0].energies(some(test_windows, slice(0, 8)))
    before = first.copy()
    detector.views[0].energies(some(test_windows, slice(8, 16)))
    np.testing.assert_array_equal(first, before)


@pytest.mark.parametrize("engine", HERE)
def test_a_detector_travels_to_another_process(engine: Engine, trained: Trained) -> None:
    detector = on(trained(), engine)
    copy = pickle.loads(pickle.dumps(detector))
    z = np.random.default_rng(0).standard_normal((5, detector.config.K), dtype=np.float32)
    assert copy.network.engine == engine
    np.testing.assert_array_equal(copy.network.energies(z), detector.network.energies(z))


@pytest.mark.parametrize("engine", HERE)
def test_the_callers_thread_keeps_its_small_numbers(
    engine: Engine, trained: Trained, test_windows: Windows
) -> None:
    on(trained(), engine).score_windows(some(test_windows, slice(0, 8)))
    denormal = np.array([2.0**-140], dtype=np.float32)
    assert (denormal * np.float32(1))[0] > 0


def test_a_trained_network_has_no_denormals_when_it_scores(
    trained: Trained, test_windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[NDArray[np.float32]] = []

    def recording(a: NDArray[np.float32]) -> NDArray[np.float32]:
        seen.append(gelu(a))
        return seen[-1]

    from stepvad.model import engines

    gelu = engines.gelu
    monkeypatch.setattr(engines, "gelu", recording)
    trained().score_windows(test_windows)
    values = np.abs(np.concatenate([part.ravel() for part in seen]))
    assert (values == 0).any()  # far to the left GELU is nothing
    assert not ((values > 0) & (values < np.finfo(np.float32).tiny)).any()


def test_the_default_is_the_same_everywhere_and_the_fastest_is_what_this_machine_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert choose("auto", width=1024) == "onnxruntime"

    def fastest(*there: Engine, width: int = 1024) -> Engine:
        monkeypatch.setattr(engines, "usable", lambda engine: engine in there)
        return choose("fastest", width=width)

    assert fastest(*ENGINES) == "openvino-bfloat16"
    assert fastest(*ENGINES, width=64) == "openvino"
    assert fastest("numpy", "onnxruntime", "openvino") == "openvino"
    assert fastest("numpy", "onnxruntime") == "onnxruntime"
    assert fastest("numpy") == "numpy"
    assert choose("auto", width=1024) == "numpy"


def test_a_runtime_that_is_not_there_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError) as caught:
        choose("openvino", width=8)
    assert caught.value.problem == "runtime openvino needs the openvino extra"


@pytest.mark.parametrize(("features", "has"), [("avx2 fma", False), ("avx512_bf16", True)])
def test_openvino_is_asked_only_where_a_processor_may_have_bfloat16(
    features: str, has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"flags : {features}")
    monkeypatch.setattr(engines, "openvino_has_bfloat16", lambda: True)
    assert engines._has_bfloat16.__wrapped__() is has


def test_a_processor_without_bfloat16_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_has_bfloat16", lambda: False)
    with pytest.raises(ConfigError, match="expected a processor that supports bfloat16"):
        choose("openvino-bfloat16", width=8)


def test_an_unknown_runtime_is_named(trained: Trained) -> None:
    with pytest.raises(ConfigError, match="runtime: expected 'auto' or 'fastest' or 'numpy'"):
        trained().with_engine("tpu")  # type: ignore[arg-type]


def test_threads_are_those_asked_for_or_omp_num_threads_or_all_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_of(None) == 3
    assert threads_of(5) == 5
    for nonsense in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", nonsense)
        assert threads_of(None) == len(os.sched_getaffinity(0))
    with pytest.raises(ConfigError, match="threads: expected at least 1, got 0"):
        threads_of(0)


def test_the_log_says_what_scores(trained: Trained, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="stepvad.model.engines")
    trained().with_engine("auto", 1)
    assert "scoring with onnxruntime, threads: 1" in caplog.messages


def test_the_default_runtime_imports_neither_torch_nor_openvino(trained: Trained) -> None:
    code = (
        "import sys\n"
        "from stepvad.model.engines import choose\n"
        "import stepvad.detector\n"
        "choose('auto', width=1024)\n"
        "print({'torch', 'openvino'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


PROGRAM = """
import gc, signal, threading
from stepvad import Detector
from stepvad.evaluation.walkers import make_clips
from stepvad.site import demo

clip = next(make_clips(1, seed=1, seconds=2.0))[0]
models = [Detector.load(demo.MODEL, runtime="openvino")]
models[0].score(clip)

def drop():
    models.clear()
    gc.collect()

thread = threading.Thread(target=drop)
thread.start()
thread.join()
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_signal_after_another_thread_dropped_the_last_model_is_handled() -> None:
    pytest.importorskip("openvino")
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120
    )
    assert (run.returncode, run.stdout) == (0, "interrupted\n"), run.stderr[-500:]


VARIABLES = ("ORT_DISABLE_TELEMETRY", "CI", "TF_BUILD", "JENKINS_URL")
"""Any of these would keep an engine quiet by itself."""
WORK = """
import sys
from pathlib import Path
from stepvad import Detector
from stepvad.model import modelfile
from stepvad.evaluation.walkers import make_clips
from stepvad.site import demo

asked = []
sys.addaudithook(lambda name, _: name.startswith("socket.") and asked.append(name))
((clip, _),) = make_clips(1, seed=0, seconds=3.0)
for runtime in ("openvino", "onnxruntime"):
    Detector.load(demo.MODEL, threads=1, runtime=runtime).score(clip)
Detector.load(demo.MODEL).export(Path(sys.argv[1], "model.onnx"))
print(*asked)
"""
LOUD = "import onnxruntime, openvino"
NOWHERE = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
"""What would be sent gets no further than this machine."""


def run(words: str, home: Path, out: Path) -> tuple[str, list[str], list[str]]:
    """What a fresh user's Python prints, the files it leaves at home, the addresses it calls."""
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    kept = {name: value for name, value in kept.items() if not name.startswith("XDG_")}
    command = [sys.executable, "-c", words, str(out)]
    trace = out / "trace.txt"
    if shutil.which("strace"):
        command = ["strace", "-f", "-qq", "-e", "trace=connect", "-o", str(trace), *command]
    done = subprocess.run(
        command,
        env=kept | NOWHERE | {"HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    files = [str(one.relative_to(home)) for one in home.rglob("*") if one.is_file()]
    called = re.findall(r"AF_INET6?.*", trace.read_text()) if trace.exists() else []
    return done.stdout.strip(), files, called


def test_the_engines_send_nothing_and_leave_nothing_at_home(tmp_path: Path) -> None:
    assert run(WORK, tmp_path / "home", tmp_path) == ("", [], [])


def test_without_the_remedy_this_would_be_seen(tmp_path: Path) -> None:
    _, files, _ = run(LOUD, tmp_path / "home", tmp_path)
    if not files:
        pytest.skip("these versions report nothing")
    assert any("onnxruntime" in one for one in files)
    assert any("openvino" in one for one in files)


def test_a_module_that_was_there_before_is_there_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "openvino_telemetry", sys)
    assert import_openvino().__name__ == "openvino"
    assert sys.modules["openvino_telemetry"] is sys
