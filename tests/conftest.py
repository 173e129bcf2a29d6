"""What tests of several rooms share: walkers, the public data, and which tests are slow.

`--measure` writes what every test function costs to `durations.json`, if that is noticeable; the
figures of others stay. Collected tests are marked by it. A cost is processor time, or a part of the
time that the test waited: other tests run meanwhile.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from stepvad.cli import main
from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.evaluation import walkers as kinematic
from stepvad.formats.labels import FrameLabels
from stepvad.model.scoring import WindowScores
from stepvad.poses import Clip
from stepvad.site import demo
from stepvad.windows.views import Windows
from tests.browser import _started, blank, chromium

DURATIONS = Path(__file__).with_name("durations.json")
NOTICEABLE_S = 0.2
"""Tests that cost more are `slow`: scripts/test leaves them out."""
LONG_S = 3.0
"""Tests that cost more are `long`: continuous integration leaves them out."""
WAITING = 0.2
"""What a second of waiting costs, in seconds of a processor."""
PROPERTY = "cost_s"

_measured: defaultdict[str, float] = defaultdict(float)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that measures."""
    parser.addoption("--measure", action="store_true", help="write the durations of the tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests by what they cost when they were measured."""
    seconds: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    for item in items:
        took = seconds.get(_function(item.nodeid), 0.0)
        if took > NOTICEABLE_S:
            item.add_marker(pytest.mark.slow)
        if took > LONG_S:
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    """Note when a test begins."""
    item.stash[_BEGAN] = _processor_s(), time.monotonic()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Note what it cost, its fixtures and processes included."""
    yield
    before_s, began = item.stash[_BEGAN]
    busy_s, wall_s = _processor_s() - before_s, time.monotonic() - began
    item.user_properties.append((PROPERTY, max(busy_s, WAITING * wall_s)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the longest of each function's cases."""
    took = dict(report.user_properties).get(PROPERTY)
    if isinstance(took, float):
        name = _function(report.nodeid)
        _measured[name] = max(_measured[name], took)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the durations, by the process that collects all reports."""
    if session.config.getoption("--measure") and not hasattr(session.config, "workerinput"):
        known = json.loads(DURATIONS.read_text(encoding="utf-8"))
        seconds = {name: round(s, 1) for name, s in (known | _measured).items() if s > NOTICEABLE_S}
        DURATIONS.write_text(json.dumps(seconds, indent=0, sort_keys=True) + "\n", encoding="utf-8")


_BEGAN = pytest.StashKey[tuple[float, float]]()


def _function(nodeid: str) -> str:
    """A test's name without its case; each study is a test of its own."""
    return nodeid if "test_studies.py::" in nodeid else nodeid.partition("[")[0]


def _processor_s() -> float:
    """Processor time of this process and of its children that ended."""
    used = (resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str


Command = Callable[..., Run]


@pytest.fixture
def stepvad(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line, run in this process."""

    def run(*words: str | Path) -> Run:
        monkeypatch.setattr(sys, "argv", ["stepvad", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return Run(int(end.value.code or 0), out, err)

    return run


__all__ = [
    "_started",
    "blank",
    "chromium",
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


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A cache of networks for the tests alone."""
    os.environ["STEPVAD_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def small_model() -> Detector:
    """A model of people who walk and stand."""
    return Detector.load(demo.MODEL, threads=1)


@pytest.fixture(scope="session")
def walkers() -> list[Clip]:
    """Training clips: people who walk and stand, four clips of eight seconds."""
    return [clip for clip, _ in kinematic.make_clips(4, seed=1, seconds=8.0)]


@pytest.fixture(scope="session")
def usual_footage() -> list[Clip]:
    """Clips of people who walk and stand, with enough tracks for usual motion."""
    return [clip for clip, _ in kinematic.make_clips(8, seed=4, seconds=6.0)]


@pytest.fixture(scope="session")
def usual_model(usual_footage: list[Clip]) -> Detector:
    """Usual motion: poses over 25 and 8 frames, motion over 25 and place over 8."""
    return Detector.fit(usual_footage, Config.usual(25.0, ("pose", "motion", "place")))


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
