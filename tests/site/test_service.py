"""The process of a site: signals, systemd, limits, and the watchdog."""

from __future__ import annotations

import errno
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from stepvad.site.service import ALIVE, SystemdNotifier, limited_memory
from stepvad.site.stages import STUCK
from tests.video.servers import SLOWER, wait_until

PROGRAM = """
import ctypes, os, signal, sys, time
from pathlib import Path
from stepvad.errors import ConfigError
from stepvad.site import service as process
from stepvad.site.stages import Supervisor, watch_over

process.FROZEN_S = process.START_S = process.STOP_S = {limit_s}
place = Path(sys.argv[1])
place.write_text(place.read_text() + "x" if place.exists() else "x")
n_runs = len(place.read_text())

def watch(service):
    watch_over(Supervisor(), service.stop, service.beat)
    return []

def run(service):
{body}

sys.exit(process.Service().run(run))
"""
IDLE = 60.0


def command(body: str, place: Path, limit_s: float = IDLE) -> list[str]:
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    return [sys.executable, "-c", PROGRAM.format(body=indented, limit_s=limit_s), str(place)]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def run(body: str, runs: Path, limit_s: float = IDLE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(body, runs, limit_s), capture_output=True, text=True, timeout=60 * SLOWER
    )


@contextmanager
def running(body: str, runs: Path, **limits: float) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command(body, runs, **limits)) as process:
        try:
            wait_until(runs.exists, 20 * SLOWER)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("return []", 0, ""),
        ("return ['capture']", STUCK, ""),
        ("raise ConfigError('x: got y', hint='try z')", 1, "x: got y"),
        ("raise RuntimeError('boom')", STUCK, "boom"),
    ],
)
def test_the_exit_code_tells_how_it_ended(body: str, code: int, said: str, runs: Path) -> None:
    done = run(body, runs)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert runs.read_text() == "x"


HANGS = {
    "at the start": "time.sleep(60)",
    "later": "service.beat()\ntime.sleep(60)",
    "in native code": "service.beat()\nctypes.PyDLL(None).sleep(60)",
    "at the stop": "os.kill(os.getpid(), signal.SIGTERM)\nwatch(service)\ntime.sleep(60)",
}


@pytest.mark.parametrize("when", HANGS)
def test_a_process_that_hangs_ends_itself_and_tells_where(when: str, runs: Path) -> None:
    done = run(HANGS[when], runs, limit_s=1.0)
    assert done.returncode == 1
    assert "in run" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order(number: signal.Signals, runs: Path) -> None:
    body = "service.beat()\nplace.with_name('ready').touch()\nreturn watch(service)"
    with running(body, runs) as process:
        wait_until(runs.with_name("ready").exists, 20 * SLOWER)
        process.send_signal(number)
        assert process.wait(20 * SLOWER) == 0
    assert runs.read_text() == "x"


def test_new_settings_start_it_again_as_the_same_process_without_its_files(runs: Path) -> None:
    body = """
if n_runs == 1:
    os.set_inheritable(os.open(place, os.O_RDONLY), False)
files = sorted(os.listdir("/proc/self/fd"))
print(os.getpid(), len(files), flush=True)
if n_runs < 3:
    service.restart()
return watch(service) if n_runs < 3 else []
"""
    done = run(body.strip(), runs)
    assert done.returncode == 0, done.stderr
    assert runs.read_text() == "xxx"
    (pid, n_first), *later = [line.split() for line in done.stdout.splitlines()]
    assert later == [[pid, str(int(n_first) - 1)]] * 2


def test_new_settings_start_it_again_even_if_a_stage_does_not_stop(runs: Path) -> None:
    body = "if n_runs == 1:\n    service.restart()\n    watch(service)\n    return ['capture']"
    done = run(f"{body}\nreturn []", runs)
    assert (done.returncode, runs.read_text()) == (0, "xx"), done.stderr


def test_a_signal_while_it_stops_for_new_settings_ends_it(runs: Path) -> None:
    body = "service.restart()\nwatch(service)\nos.kill(os.getpid(), signal.SIGTERM)\nreturn []"
    done = run(body, runs)
    assert (done.returncode, runs.read_text()) == (0, "x"), done.stderr


def test_systemd_hears_that_the_site_is_there_goes_on_and_ends(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(20 * SLOWER)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with running("return watch(service)", runs) as process:
            assert [systemd.recv(100) for _ in range(3)] == [ALIVE.encode()] * 3
            process.terminate()
            while (said := systemd.recv(100)) == ALIVE.encode():
                pass
            assert said == b"STOPPING=1"
            assert process.wait(20 * SLOWER) == 0


def test_without_systemd_nothing_is_said() -> None:
    for address in (None, "@nobody-listens-here"):
        with closing(SystemdNotifier(address)) as notifier:
            notifier.notify(ALIVE)


def test_systemd_hears_from_a_site_without_file_handles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(0.1)
        with closing(SystemdNotifier(str(tmp_path / "notify"))) as notifier:
            monkeypatch.setattr(socket, "socket", none_left)
            notifier.notify(ALIVE)
        assert systemd.recv(100) == ALIVE.encode()


def test_memory_beyond_the_limit_is_refused_and_afterwards_granted() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limited_memory(1 << 28):
        assert np.ones(1 << 20).sum() == 1 << 20
        with pytest.raises(MemoryError):
            np.ones(1 << 29)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert np.empty(1 << 27).size == 1 << 27
