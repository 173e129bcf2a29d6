"""What tests of several rooms share: walkers, the public data, and how hard hypothesis tries."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from stepvad.detector import Detector
from stepvad.evaluation import walkers as kinematic
from stepvad.formats.labels import FrameLabels
from stepvad.intake import demo
from stepvad.model.scoring import WindowScores
from stepvad.poses import Clip
from stepvad.windows import Windows
from tests.browser import _started, blank, chromium
from tests.durations import (
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_runtest_logreport,
    pytest_runtest_protocol,
    pytest_runtest_teardown,
    pytest_sessionfinish,
)

__all__ = [
    "_started",
    "blank",
    "chromium",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_runtest_logreport",
    "pytest_runtest_protocol",
    "pytest_runtest_teardown",
    "pytest_sessionfinish",
]

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # tests import ONNX Runtime themselves
os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch and pytest's processes share the cores
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests press Ctrl-C

# `pytest --hypothesis-profile thorough` looks further, at other cases every time
unhurried = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "fast", max_examples=50, deadline=None, derandomize=True, suppress_health_check=unhurried
)
settings.register_profile(
    "thorough", max_examples=5000, deadline=None, suppress_health_check=unhurried
)
settings.load_profile("fast")


MEASURED = (
    "tests/site/",
    "tests/intake/",
    "tests/supervision/",
    "tests/cli/",
    *("tests/fleet/", "tests/web/"),
)
"""Tests whose processes count for coverage: parts of sites and fleets run nowhere else."""
COVERAGE = "COVERAGE_PROCESS_CONFIG"


@pytest.fixture(scope="session", autouse=True)
def _coverage_of_processes() -> str | None:
    """What makes processes measure their coverage, taken away: they need half as long again."""
    return os.environ.pop(COVERAGE, None)


@pytest.fixture(scope="module", autouse=True)
def _processes_measured(
    request: pytest.FixtureRequest, _coverage_of_processes: str | None
) -> Iterator[None]:
    """Coverage of processes, where they are what a test is about."""
    own = request.path.relative_to(Path(__file__).parents[1]).as_posix()
    if _coverage_of_processes is not None and own.startswith(MEASURED):
        os.environ[COVERAGE] = _coverage_of_processes
    yield
    os.environ.pop(COVERAGE, None)


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """What a test sets up in the logs of its process ends with it."""
    loggers = [logging.getLogger(), logging.getLogger("stepvad")]
    before = [(logger, [*logger.handlers], logger.level) for logger in loggers]
    yield
    for logger, handlers, level in before:
        logger.handlers = handlers
        logger.setLevel(level)


@pytest.fixture(scope="session")
def small_model() -> Detector:
    """A model of people who walk and stand."""
    return Detector.load(demo.MODEL, threads=1)


@pytest.fixture(scope="session")
def walkers() -> list[Clip]:
    """Training clips: people who walk and stand, four clips of eight seconds."""
    return [clip for clip, _ in kinematic.make_clips(4, seed=1, seconds=8.0)]


@pytest.fixture(scope="session")
def walker_test() -> list[tuple[Clip, FrameLabels]]:
    """Test clips with their truth: somebody runs, falls, cycles, goes backwards, crouches."""
    return list(kinematic.make_clips(5, seed=2, seconds=8.0, anomalies=True))


@pytest.fixture(scope="session")
def walker_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data set of walkers in ShanghaiTech's layout: three training and five test clips."""
    root = tmp_path_factory.mktemp("walkers")
    kinematic.write_dataset(root, seed=3, train_clips=3, test_clips=5, seconds=8.0)
    return root


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The public data sets, for tests with the marker `data`."""
    beside_the_project = Path(__file__).parents[2] / "shared" / "data"
    root = Path(os.environ.get("STEPVAD_DATA", beside_the_project))
    if not root.is_dir():
        pytest.skip(f"no public data at {root}; name its directory in STEPVAD_DATA")
    return root


@pytest.fixture
def cut_by_stream(monkeypatch: pytest.MonkeyPatch) -> list[Windows]:
    """The windows that reach a detector, in the order in which they are scored."""
    seen: list[Windows] = []
    score_windows = Detector.score_windows

    def recording(self: Detector, windows: Windows) -> WindowScores:
        seen.append(windows)
        return score_windows(self, windows)

    monkeypatch.setattr(Detector, "score_windows", recording)
    return seen
