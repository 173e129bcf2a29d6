"""What may hang, run out or turn read-only at a site, and how it goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from stepvad.site.app import Site
from stepvad.site.settings.file import load
from tests.site.sites import (
    RATE,
    Running,
    busy_person,
    frozen,
    one_person,
    pose_camera,
    video_camera,
    write_networks,
    write_site,
)
from tests.video.servers import SLOWER, wait_until

pytestmark = pytest.mark.slow

OUT_S = float(os.environ.get("STEPVAD_TEST_OUT_S", "4"))
"""How long a machine is out of processes, handles or disk; the target is for 30."""
QUIET_S = float(os.environ.get("STEPVAD_TEST_QUIET_S", "8"))
"""How long latencies are observed, before a fault and from it on."""


def test_a_scoring_thread_that_hangs_is_restarted_and_open_events_end(tmp_path: Path) -> None:
    clip = one_person(60.0, every_s=60.0, for_s=50.0)
    with Running(write_site(tmp_path, pose_camera("door", clip, tmp_path))) as running:
        (first, *_) = running.wait_for_events(1)
        assert first.is_open
        with frozen(running.processes()["site"], "scoring"):
            back = wait_until(
                lambda: running.log.read_text().count("is watching, cameras") == 2, 60
            )
        note("scoring restarted after", back)
        assert back <= 15.0 * SLOWER
        wait_until(lambda: not running.events()[0].is_open, 5 * SLOWER)
        assert running.events()[0].ended_by == "interrupted"
        assert "scoring hangs: no progress" in running.log.read_text()
        running.wait_for_events(2)
        assert running.stop() == 0
        assert all(not record.is_open for record in running.events())


def test_systemd_kills_a_site_that_hangs_and_starts_it_again(tmp_path: Path) -> None:
    with Running(write_site(tmp_path, pose_camera("door", busy_person(), tmp_path))) as running:
        running.wait_for_events(1)
        site = running.processes()["site"]
        os.kill(site, signal.SIGSTOP)
        back = wait_until(lambda: running.log.read_text().count("is watching, cameras") == 2, 90)
        assert back <= 30.0 * SLOWER
        assert running.processes()["site"] != site
        assert running.stop() == 0


def note(what: str, *seconds: float) -> None:
    """Show a figure (`pytest -s`)."""
    sys.stderr.write(f"{what}: {', '.join(f'{one:.3f} s' for one in seconds)}\n")


@contextmanager
def site_in_this_process(settings: Path) -> Iterator[Site]:
    """A site whose status can be inspected; its children are processes of their own."""
    site, stop = Site(load(settings)), threading.Event()
    thread = threading.Thread(target=site.run, args=[stop])
    thread.start()
    try:
        yield site
    finally:
        stop.set()
        thread.join(40)
        assert not thread.is_alive()


Delays = dict[str, list[float]]


def _delays(site: Site, seconds: float) -> Delays:
    """The delays of each camera's frames in the next seconds."""
    seen: Delays = {view.name: [] for view in site.status.snapshot().cameras}
    observe = site.status.observe_latency

    def heard(name: str, delay_s: float) -> None:
        seen[name].append(delay_s)
        observe(name, delay_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site.status, "observe_latency", heard)
        time.sleep(seconds)
    return seen


def _p99(delays: Delays, cameras: Sequence[str]) -> float:
    return float(np.quantile([one for name in cameras for one in delays[name]], 0.99))


def test_a_child_that_hangs_is_replaced_and_other_cameras_do_not_notice(tmp_path: Path) -> None:
    cameras = [pose_camera(name, busy_person(), tmp_path) for name in ("a", "b", "c")]
    cameras += [video_camera(name, tmp_path) for name in ("left", "right")]
    settings = write_site(tmp_path, *cameras, write_networks(tmp_path))
    with site_in_this_process(settings) as site:
        wait_until(lambda: _scored(site, "left") > 5 and _scored(site, "right") > 5, 60 * SLOWER)
        usual = _delays(site, QUIET_S)
        for victim, others in (("cameras-0", ("a", "b", "c", "right")),):
            affected = _delays_while_it_hangs(site, victim)
            calm, p99 = _p99(usual, others), _p99(affected, others)
            note(f"p99 of the others without and with {victim} hanging", calm, p99)
            assert p99 <= max(1.2 * calm, calm + 0.01 * SLOWER**2.5), victim


def _delays_while_it_hangs(site: Site, victim: str) -> Delays:
    """The delays from the moment that a child hangs; it is replaced meanwhile."""
    pid, restarts = site.pipeline.cameras.pids()[victim], _restarts(site, "left")
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    affected: list[Delays] = []
    thread = threading.Thread(target=lambda: affected.append(_delays(site, QUIET_S)))
    thread.start()
    wait_until(lambda: _restarts(site, "left") > restarts, 60)
    note(f"{victim} noticed after", time.monotonic() - began)
    assert time.monotonic() - began <= 10.0 * SLOWER
    wait_until(lambda: site.pipeline.cameras.pids().get(victim, pid) != pid, 20 * SLOWER)
    for camera in ("left", "right"):
        before = _scored(site, camera)
        wait_until(partial(_has_scored, site, camera, before + 5), 20 * SLOWER)
    thread.join()
    return affected[0]


def _has_scored(site: Site, camera: str, more_than: int) -> bool:
    return _scored(site, camera) > more_than


def _scored(site: Site, camera: str) -> int:
    return next(v.counts["scored"] for v in site.status.snapshot().cameras if v.name == camera)


def _restarts(site: Site, camera: str) -> int:
    return next(v.counts["restarts"] for v in site.status.snapshot().cameras if v.name == camera)


AS_NOBODY = (
    *("setpriv", "--reuid=65534", "--clear-groups", "--bounding-set=-all,+dac_override"),
    *("--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"),
)
"""Limits of processes do not hold for root."""
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv"
)


@pytest.fixture
def anybodys() -> Iterator[Path]:
    """A directory that every user may write."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@contextmanager
def out_of(pid: int, **limits: int) -> Iterator[None]:
    """Take resources away from a process of nobody for a while."""
    before = {what: _limit(pid, what) for what in limits}
    for what, most in limits.items():
        _limit(pid, what, most)
    try:
        yield
    finally:
        for what, limit in before.items():
            _limit(pid, what, limit)


def _limit(pid: int, what: str, soft: int | None = None) -> int:
    """The soft limit of a process, after setting it."""
    command = [*AS_NOBODY, "prlimit", "--pid", str(pid), "--raw", "--noheadings", "--output=SOFT"]
    if soft is not None:
        subprocess.run([*command[:-3], f"--{what}={soft}:"], check=True)
    done = subprocess.run([*command, f"--{what}"], capture_output=True, text=True, check=True)
    return int(done.stdout)


@needs_root
def test_without_processes_and_handles_for_a_while_everything_comes_back(
    anybodys: Path,
) -> None:
    networks = write_networks(anybodys)
    cameras = [video_camera("left", anybodys), pose_camera("door", busy_person(), anybodys)]
    settings = write_site(anybodys, *cameras, networks)
    with Running(settings, before=AS_NOBODY) as running:
        wait_until(lambda: {r.camera for r in running.events()} == {"left", "door"}, 20 * SLOWER)
        processes = running.processes()
        site = processes["site"]
        open_files = len([*Path(f"/proc/{site}/fd").iterdir()])
        with out_of(site, nproc=0, nofile=open_files - 4):
            os.kill(processes["cameras-0"], signal.SIGKILL)
            time.sleep(OUT_S)
            assert running.processes()["site"] == site
            assert "cameras-0" not in running.processes()
        known = {record.id for record in running.events()}
        back = wait_until(partial(_are_all_back, running, known), 60 * SLOWER)
        note("back after", back)
        assert back <= 10.0 * SLOWER
        assert running.stop() == 0, running.log.read_text()
        assert all(not record.is_open for record in running.events())
        assert running.log.stat().st_size < 200_000


def _are_all_back(running: Running, known: set[str]) -> bool:
    new = {record.camera for record in running.events() if record.id not in known}
    return "cameras-0" in running.processes() and "left" in new


class Disk:
    """A file system of its own, which can fail as one on a broken disk does."""

    def __init__(self, place: Path, image: Path) -> None:
        self.place, self._image = place, image
        place.mkdir()
        with image.open("wb") as file:
            file.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", image], check=True)
        self.mount()

    def mount(self) -> None:
        """Mount a copy of it: the failed one, which open files still hold, writes to its own."""
        image = self._image.with_name(f"{time.monotonic_ns()}.img")
        shutil.copyfile(self._image, image)
        self._image = image
        loop = subprocess.run(
            ["losetup", "--find", "--show", self._image], capture_output=True, text=True
        )
        if loop.returncode:
            pytest.skip("needs the right to mount")
        device = loop.stdout.strip()
        subprocess.run(["mount", "-o", "errors=remount-ro", device, self.place], check=True)
        subprocess.run(["losetup", "--detach", device], check=True)  # as soon as nobody uses it

    def fail(self) -> None:
        """Have the system turn it read-only, whoever has files of it open for writing."""
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        device = next(words[0] for words in mounts if words[1] == str(self.place))
        (Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error").write_text("a test")

    def unmount(self) -> None:
        """Take it away; files that are open stay with it."""
        subprocess.run(["umount", "--lazy", self.place], check=True)


@needs_root
def test_a_disk_that_turns_read_only_and_back_loses_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "site-data", tmp_path / "disk.img")
    try:
        camera = pose_camera("door", busy_person(), tmp_path)
        with Running(write_site(tmp_path, camera)) as running:
            running.wait_for_events(1)
            wait_until(lambda: not running.events()[0].is_open, 30 * SLOWER)
            recorded = disk.place / "poses" / "door"
            recorded.mkdir(parents=True)
            for number in range(5):
                (recorded / f"door-{number}.parquet").write_bytes(b"x")
            os.sync()
            before = {record.id for record in running.events()}
            site = running.processes()["site"]
            disk.fail()
            wait_until(lambda: "could not be stored" in running.log.read_text(), 60 * SLOWER)
            time.sleep(OUT_S)
            disk.unmount()
            disk.mount()
            back = wait_until(lambda: "stored again" in running.log.read_text(), 30 * SLOWER)
            note("events are stored again after", back)
            assert running.processes()["site"] == site
            running.wait_for_events(len(before) + 2)
            assert running.stop() == 0, running.log.read_text()
            events = running.events()
        assert before <= {record.id for record in events}
        assert len([*recorded.glob("door-?.parquet")]) == 5
        assert all(not record.is_open for record in events)
        slots = np.array(sorted(record.frame_seq for record in events))
        assert np.ptp(np.diff(slots)) <= 2 * RATE, "no event in between is missing"
    finally:
        disk.unmount()


FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
MONTH_S = 31 * 86400


@pytest.mark.skipif(FAKETIME is None, reason="needs libfaketime")
def test_a_clock_that_jumps_by_a_month_and_back_deletes_nothing(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("+0")
    environment = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    settings = write_site(tmp_path, pose_camera("door", busy_person(), tmp_path))
    with Running(settings, more=environment) as running:
        running.wait_for_events(2)
        known = {record.id for record in running.events()}
        for jump in (MONTH_S, 0):
            clock.write_text(f"{jump:+d}")
            site = running.processes()["site"]
            n = len(running.events())
            running.wait_for_events(n + 1)  # the site goes on by the monotonic clock
            assert running.processes()["site"] == site, "no deadline takes the jump for a hang"
            os.kill(site, signal.SIGKILL)  # what is old is looked for at every start
            wait_until(partial(_is_another, running, site), 20 * SLOWER)
            running.wait_for_events(n + 2)
            assert known <= {record.id for record in running.events()}
        assert "retention deleted" not in running.log.read_text()
        assert "the wall clock is" in running.log.read_text()
        assert running.stop() == 0, running.log.read_text()
        assert all(not record.is_open for record in running.events())


def _is_another(running: Running, site: int) -> bool:
    return running.processes().get("site", site) != site
