"""The process that starts a site again when it dies, hangs or cannot be started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepvad.supervision import parent_process
from stepvad.supervision.parent_process import HeartbeatPipe, SystemdNotifier, supervise
from tests.video.servers import SLOWER, wait_until

HEAD = """
import os, sys, time
from pathlib import Path
fd = int(sys.argv[sys.argv.index("--heartbeat-fd") + 1])
runs = Path(sys.argv[-1])
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
n = len(runs.read_text())
def beat(): os.write(fd, b".")
"""
"""A site that counts how often it was started."""


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """The signal handlers of this process as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def run(code: str, runs: Path) -> int:
    return supervise([sys.executable, "-c", HEAD + code, str(runs)])


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (3, 1)])
def test_a_site_that_means_to_end_is_not_started_again(code: int, ends: int, runs: Path) -> None:
    assert run(f"raise SystemExit({code})", runs) == ends
    assert runs.read_text() == "x"


def test_a_site_that_dies_is_started_again_and_again(runs: Path) -> None:
    assert run("os.abort() if n < 8 else sys.exit(0)", runs) == 0
    assert len(runs.read_text()) == 8


def test_a_site_that_worked_once_is_not_given_up_when_it_is_refused_later(runs: Path) -> None:
    code = "beat(); time.sleep(0.5); sys.exit({1: 1, 2: 3, 3: 3}.get(n, 0))"
    assert run(code, runs) == 0
    assert len(runs.read_text()) == 4


def test_a_site_with_new_settings_is_started_again_at_once(
    runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    began = time.monotonic()
    assert run("sys.exit(4 if n < 8 else 0)", runs) == 0
    assert len(runs.read_text()) == 8
    assert "exited with code" not in caplog.text
    assert time.monotonic() - began < 8 * SLOWER  # without the delays of a crash


def test_a_site_that_hangs_is_killed_and_started_again(
    runs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parent_process, "HANG_S", 0.5 * SLOWER)
    assert run("beat(); time.sleep(60 if n == 1 else 0.1)", runs) == 0
    assert len(runs.read_text()) == 2
    assert "the site hangs" in caplog.text


def test_a_hanging_site_that_takes_long_to_die_is_reported_once(
    runs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parent_process, "HANG_S", 0.5 * SLOWER)
    kill, asked = subprocess.Popen.kill, list[float]()

    def kill_late(process: subprocess.Popen[bytes]) -> None:  # as one that waits for its disk
        asked.append(time.monotonic())
        if asked[-1] - asked[0] > 2.0:
            kill(process)

    monkeypatch.setattr(subprocess.Popen, "kill", kill_late)
    assert run("beat(); time.sleep(60 if n == 1 else 0.1)", runs) == 0
    assert len(asked) > 2
    assert caplog.text.count("the site hangs") == 1


def test_a_site_that_hangs_before_its_first_heartbeat_is_killed_too(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent_process, "START_S", 1.0 * SLOWER)
    assert run("time.sleep(60 if n == 1 else 0.1)", runs) == 0
    assert len(runs.read_text()) == 2


def test_a_site_that_cannot_be_started_is_tried_again(
    runs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, left = subprocess.Popen, [2]

    def scarce(*args: object, **kwargs: object) -> object:
        if left[0]:
            left[0] -= 1
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return real(*args, **kwargs)  # type: ignore[call-overload]  # as it came

    monkeypatch.setattr(subprocess, "Popen", scarce)
    assert run("", runs) == 0
    assert caplog.text.count("could not be started") == 2


SUPERVISOR = """
import sys
from stepvad.supervision import parent_process
parent_process.STOP_S = 1.0
sys.exit(parent_process.supervise([sys.executable, *sys.argv[1:]]))
"""


@contextmanager
def supervised(code: str, runs: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor in a process of its own, with a site that has started."""
    words = [sys.executable, "-c", SUPERVISOR, "-c", HEAD + code, str(runs)]
    with subprocess.Popen(words) as process:
        try:
            wait_until(runs.exists, 10 * SLOWER)
            yield process
        finally:
            process.kill()


def test_a_site_that_ignores_its_end_is_killed(runs: Path) -> None:
    ready = runs.with_name("ready")
    code = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += f"Path({str(ready)!r}).touch()\nwhile True: beat(); time.sleep(0.1)"
    with supervised(code, runs) as process:
        wait_until(ready.exists, 10 * SLOWER)
        process.terminate()
        assert process.wait(10 * SLOWER) == 1
    assert runs.read_text() == "x"


def test_systemd_hears_that_the_site_is_there_goes_on_and_ends(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(5 * SLOWER)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        code = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        with supervised(code + "while True: beat(); time.sleep(0.1)", runs) as process:
            assert systemd.recv(100) == b"READY=1\nWATCHDOG=1"
            assert [systemd.recv(100) for _ in range(2)] == [b"WATCHDOG=1"] * 2
            process.terminate()
            while (said := systemd.recv(100)) == b"WATCHDOG=1":
                pass
            assert said == b"STOPPING=1"
            assert process.wait(10 * SLOWER) == 0


def test_without_systemd_nothing_is_said() -> None:
    SystemdNotifier(None).alive()
    SystemdNotifier("@nobody-listens-here").alive()


def test_a_heartbeat_never_waits_for_its_reader() -> None:
    reads, writes = os.pipe()
    pipe = HeartbeatPipe(writes)
    began = time.monotonic()
    for _ in range(100_000):  # more than the pipe holds
        pipe.beat()
    assert time.monotonic() - began < 10
    os.close(reads)
    pipe.beat()
    os.close(writes)
