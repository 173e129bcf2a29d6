"""Which tests are slow: measured, not guessed.

`--measure` writes the processor time of every test function that ran and took a noticeable one to
`durations.json`; the figures of others stay. Collected tests are marked by it.
"""

from __future__ import annotations

import json
import resource
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("durations.json")
NOTICEABLE_S = 0.2
"""Tests that took longer are `slow`: scripts/test leaves them out."""
LONG_S = 5.0
"""Tests that took longer are `long`: continuous integration leaves them out."""
PROPERTY = "cpu_s"

_measured: defaultdict[str, float] = defaultdict(float)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that measures."""
    parser.addoption("--measure", action="store_true", help="write the durations of the tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests by what they took when they were measured."""
    seconds: dict[str, float] = json.loads(FILE.read_text(encoding="utf-8"))
    for item in items:
        took = seconds.get(_function(item.nodeid), 0.0)
        if took > NOTICEABLE_S:
            item.add_marker(pytest.mark.slow)
        if took > LONG_S:
            item.add_marker(pytest.mark.long)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    """Note when a test begins."""
    item.stash[_BEGAN] = _processor_s()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Note what it took, its fixtures and processes included."""
    yield
    item.user_properties.append((PROPERTY, _processor_s() - item.stash[_BEGAN]))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the longest of each function's cases."""
    took = dict(report.user_properties).get(PROPERTY)
    if isinstance(took, float):
        name = _function(report.nodeid)
        _measured[name] = max(_measured[name], took)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the durations, by the process that collects all reports."""
    if session.config.getoption("--measure") and not hasattr(session.config, "workerinput"):
        known = json.loads(FILE.read_text(encoding="utf-8"))
        seconds = {name: round(s, 1) for name, s in (known | _measured).items() if s > NOTICEABLE_S}
        FILE.write_text(json.dumps(seconds, indent=0, sort_keys=True) + "\n", encoding="utf-8")


_BEGAN = pytest.StashKey[float]()


def _function(nodeid: str) -> str:
    """A test's name without its case."""
    return nodeid.partition("[")[0]


def _processor_s() -> float:
    """Processor time of this process and of its children that ended."""
    used = (resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)
