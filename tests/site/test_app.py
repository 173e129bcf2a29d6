"""Whole sites in processes of their own: what they do, and what they survive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from stepvad.errors import ConfigError
from stepvad.events.record import Record
from stepvad.formats import read_clips
from stepvad.site import app as site
from tests.disks import small_disk
from tests.processes import wait_until_nobody_is_left
from tests.site.receivers import web_server
from tests.site.sites import (
    NO_PAGE,
    PERIOD_S,
    RATE,
    Running,
    busy_person,
    lines,
    pose_camera,
    video_camera,
    write_networks,
    write_site,
)
from tests.video.clips import write_video
from tests.video.servers import SLOWER, RtspServer, has_rtsp_server, wait_until

pytestmark = pytest.mark.slow


def test_poses_become_events_with_words_and_a_stop_leaves_nothing(
    tmp_path: Path,
) -> None:
    camera = pose_camera("door", busy_person(), tmp_path, "record = true")
    with Running(write_site(tmp_path, camera)) as running:
        (first, *_) = running.wait_for_events(1)
        wait_until(lambda: not running.events()[0].is_open, 30)
        processes = running.processes()
        assert "site" in processes
        assert running.stop() == 0, running.log.read_text()
        wait_until_nobody_is_left(processes["site"])
        over = running.events()[0]
        assert over.id == first.id
        assert over.ended_by == "calm"
        assert over.why
        assert all(not record.is_open for record in running.events())
        with running.store() as store:
            explained, poses = store.explained(over.id), store.poses(over.id)
        assert explained is not None
        assert explained.words
        assert poses
        recorded = [*read_clips(tmp_path / "site-data/poses/door")]
        assert sum(clip.n_poses for clip in recorded) > 50


def test_pictures_go_through_the_networks_and_ctrl_c_ends_events(
    tmp_path: Path,
) -> None:
    networks = write_networks(tmp_path)
    cameras = [video_camera(name, tmp_path) for name in ("left", "right")]
    with Running(write_site(tmp_path, *cameras, networks)) as running:
        running.wait_for_events(2)
        assert {"cameras-0", "cameras-1"} <= running.processes().keys()
        assert running.service.send_signal(signal.SIGINT) == 0, running.log.read_text()
        ended = running.events()
        assert {record.camera for record in ended} == {"left", "right"}
        assert {record.ended_by for record in ended} <= {"stopped", "camera lost"}
        assert "stopped" in {record.ended_by for record in ended}


def test_settings_that_do_not_work_are_told_once(tmp_path: Path) -> None:
    settings = write_site(tmp_path, '[[cameras]]\nname = "a"\nurl = "demo:"\n')
    settings.write_text(settings.read_text() + "ports = 1\n")
    with Running(settings) as running:
        assert running.service.wait() == 1
        log = running.log.read_text()
        assert log.count("error:") == 1
        assert "ports" in log
        assert "Traceback" not in log


def test_a_second_site_on_the_same_data_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "LOCK_S", 0.3)
    with (
        site.exclusive_lock(tmp_path),
        pytest.raises(ConfigError, match="expected it to be unused"),
        site.exclusive_lock(tmp_path),
    ):
        pass


def test_a_site_starts_on_a_read_only_disk_and_sends_its_events(tmp_path: Path) -> None:
    camera = pose_camera("door", busy_person(), tmp_path)
    with small_disk(1) as disk, web_server() as server:
        (tmp_path / "site-data").symlink_to(disk.path)
        subprocess.run(["mount", "-o", "remount,ro", disk.path], check=True)
        hook = f'[[sinks.webhooks]]\nname = "hook"\nurl = "{server.address}"\n'
        with Running(write_site(tmp_path, camera, more=hook + NO_PAGE)) as running:

            def told() -> list[tuple[str, bool]]:
                messages = [json.loads(one.body)["data"] for one in [*server.got]]
                return [(one["type"], one["stored"]) for one in messages]

            wait_until(lambda: ("end", False) in told(), 60 * SLOWER)
            assert told()[0] == ("new", False)
            assert running.stop() == 0, running.log.read_text()


GONE_S = float(os.environ.get("STEPVAD_TEST_GONE_S", "3"))
"""How long a camera is away; the target is for 30."""


def test_a_full_disk_drops_recorded_poses_first_and_loses_no_event(tmp_path: Path) -> None:
    camera = pose_camera("door", busy_person(), tmp_path)
    with small_disk(16) as disk:
        (tmp_path / "site-data").symlink_to(disk.path)
        with Running(write_site(tmp_path, camera)) as running:
            running.wait_for_events(1)
            poses = running.data / "poses" / "door"
            poses.mkdir(parents=True)
            for number in range(20):
                (poses / f"door-{number:02}.parquet").write_bytes(b"x" * 200_000)
            before = len(running.events())
            disk.fill()
            wait_until(lambda: "could not be stored" in running.log.read_text(), 60 * SLOWER)
            wait_until(lambda: "events are stored again" in running.log.read_text(), 60 * SLOWER)
            running.wait_for_events(before + 1)
            assert 0 < len([*poses.glob("*.parquet")]) < 20
            disk.free()
            running.wait_for_events(before + 2)
            left = len([*poses.glob("*.parquet")])
            assert running.stop() == 0
            events = running.events()
            assert len([*poses.glob("*.parquet")]) == left, "none goes while there is room"
        assert all(not record.is_open for record in events)
        slots = sorted(record.frame_seq for record in events)
        period = (PERIOD_S + 0.5) * RATE
        assert all(abs(b - a - period) < RATE for a, b in pairwise(slots))


@pytest.mark.skipif(not has_rtsp_server(), reason="needs GStreamer's RTSP server")
def test_a_camera_that_goes_away_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks = write_networks(tmp_path)
    clip = write_video(tmp_path / "source.mkv", codec="libx264", n_frames=200)
    server = RtspServer(clip, tmp_path / "rtsp.log")
    user, address = server.address.removeprefix("rtsp://").split("@")
    monkeypatch.setenv("TEST_CAMERA", user)
    camera = (
        f'[[cameras]]\nname = "gate"\nurl = "rtsp://{address}"\n'
        'credentials = "env:TEST_CAMERA"\nrate = 10.0\nthreshold = 20.0\n'
    )
    other = pose_camera("door", busy_person(), tmp_path)
    server.start()
    try:
        with Running(write_site(tmp_path, camera, other, networks)) as running:
            wait_until(lambda: any(r.camera == "gate" for r in running.events()), 60 * SLOWER)
            gone = time.monotonic()
            server.kill()
            wait_until(lambda: "camera gate is offline" in running.log.read_text(), 60 * SLOWER)
            assert time.monotonic() - gone <= 5.0 * SLOWER
            wait_until(lambda: not _of(running, "gate")[0].is_open, 5 * SLOWER)
            assert _of(running, "gate")[0].ended_by == "camera lost"
            time.sleep(max(GONE_S - (time.monotonic() - gone), 0))
            server.start()
            wait_until(lambda: len(_of(running, "gate")) == 2, 20 * SLOWER)
            first, second = _of(running, "gate")
            assert second.epoch > first.epoch
            assert second.frame_seq >= 11  # a whole window of the new connection
            assert second.start_time >= (first.end_time or 0) + GONE_S - 1
            door = _of(running, "door")
            assert len({record.epoch for record in door}) == 1, "the other camera did not notice"
            assert running.stop() == 0
            assert all(not record.is_open for record in running.events())
            assert user.split(":")[1] not in running.log.read_text()
    finally:
        server.kill()


def test_the_death_of_a_site_leaves_no_process(tmp_path: Path) -> None:
    networks = write_networks(tmp_path)
    cameras = [video_camera(name, tmp_path) for name in ("left", "right")]
    with Running(write_site(tmp_path, *cameras, networks)) as running:
        wait_until(lambda: len({r.camera for r in running.events()}) == 2, 60 * SLOWER)
        processes = running.processes()
        os.kill(processes.pop("site"), signal.SIGKILL)
        wait_until(lambda: not any(map(_is_running, processes.values())), 10 * SLOWER)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _of(running: Running, camera: str) -> list[Record]:
    return [record for record in running.events() if record.camera == camera]


SIGNS = {
    "site": "is watching, cameras: 4",
    "cameras-0": "camera left is online",
    "cameras-1": "camera right is online",
}
"""What the log says when somebody is at work."""


def _signs(running: Running, victim: str) -> int:
    return running.log.read_text().count(SIGNS[victim])


def _is_back(running: Running, victim: str, said: int) -> bool:
    return victim in running.processes() and _signs(running, victim) > said


def _has_more(running: Running, known: set[str]) -> bool:
    return any(record.id not in known for record in running.events())


def _wait_for(running: Running, victim: str) -> None:
    wait_until(lambda: victim in running.processes(), 20 * SLOWER)


def test_any_process_may_be_killed_under_load(tmp_path: Path) -> None:
    """Every announced event is stored, every event ends, and the site is back soon."""
    networks = write_networks(tmp_path)
    told = tmp_path / "told.jsonl"
    cameras = [
        *(pose_camera(name, busy_person(), tmp_path) for name in ("a", "b")),
        *(video_camera(name, tmp_path) for name in ("left", "right")),
    ]
    sink = f'[sinks.file]\npath = "{told}"\n'
    with Running(write_site(tmp_path, *cameras, networks, sink)) as running:
        running.wait_for_events(4, 120 * SLOWER)
        for victim in ("cameras-0", "site", "cameras-1"):
            _wait_for(running, victim)
            before, said = {r.id for r in running.events()}, _signs(running, victim)
            os.kill(running.processes()[victim], signal.SIGKILL)
            back = wait_until(partial(_is_back, running, victim, said), 20 * SLOWER)
            assert back <= 5.0 * SLOWER, victim
            wait_until(partial(_has_more, running, before), 30 * SLOWER)
        site = running.processes()["site"]
        assert running.stop() == 0
        wait_until_nobody_is_left(site)
        events = {record.id: record for record in running.events()}
        assert all(not record.is_open for record in events.values())
        announced = [(m["type"], m["after"]["id"]) for m in lines(told)]
        assert {id for _, id in announced} <= events.keys()
        of: dict[str, Counter[str]] = {}
        for kind, id in announced:
            of.setdefault(str(id), Counter())[str(kind)] += 1
        assert of.keys() == events.keys()
        assert all(kinds["new"] >= 1 and kinds["end"] >= 1 for kinds in of.values())
