"""Troubles of a site: when they begin and end, and that people hear of each of them once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from stepvad.events.record import message
from stepvad.site.models import Models
from stepvad.site.notify import plan
from stepvad.site.notify.people import AppriseTarget
from stepvad.site.notify.plan import Notify, Scheduler, plan_file
from stepvad.site.notify.words import UNSTORED, NoticeWords
from stepvad.site.pipeline import Pipeline
from stepvad.site.settings.file import load
from stepvad.site.settings.page import NotifySettings
from stepvad.site.status import CaptureState, LiveStatus
from stepvad.site.store.events import Store
from stepvad.site.store.outbox import SinkDelivery
from stepvad.site.troubles import Fault, RunMarker, SiteFaults, TroubleChange, Troubles
from stepvad.web.metrics import render
from tests.disks import small_disk
from tests.site.notify.services import mail_server, text_of
from tests.site.receivers import start, stop, web_server
from tests.site.records import record
from tests.site.sites import Running, one_person, pose_camera, write_site
from tests.video.servers import wait_until


class Watched:
    """A site with one camera, looked at once a second by a clock of its own."""

    def __init__(self, directory: Path) -> None:
        self.now = 1000.0
        self.status = LiveStatus(lambda: self.now)
        self.store = Store(directory / "events.db")
        self.status.camera("door", rate=10.0, threshold=3.0, model="m", zones={})
        self.told: list[str] = []
        self.troubles = Troubles(
            self.status, SiteFaults(self.store, self.status).find, lambda: self.now, lambda: 0.0
        )
        self.troubles.listeners.append(self)

    def trouble(self, change: TroubleChange) -> None:
        self.told.append(change.fault.words if change.kind == "begin" else change.fault.over)

    def shown(self) -> list[str]:
        return [one.words for one in self.status.snapshot().troubles]

    def spend(self, seconds: int, state: CaptureState = "online", *, shed: int = 0) -> None:
        self.status.state("door", state, "" if state == "online" else "no answer", 0.0)
        for _ in range(seconds):
            self.now += 1.0
            if state == "online":
                self.status.count("door", "scored", 10 - shed)
                self.status.count("door", "shed", shed)
            self.troubles.look()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


BEGIN, END = "camera door is offline", "camera door is watched again"


def test_a_camera_that_is_away_is_told_once_and_its_return_once(watched: Watched) -> None:
    watched.spend(29, "offline")
    watched.spend(10)
    assert (watched.told, watched.shown()) == ([], []), "too short to tell"
    watched.spend(900, "offline")
    assert watched.told == [BEGIN]
    assert watched.shown() == ["camera door is offline: no answer"]
    assert b"stepvad_troubles 1.0" in render(watched.status, "1")
    watched.spend(59)
    assert watched.told == [BEGIN], "back only for a moment"
    watched.spend(5)
    assert (watched.told, watched.shown()) == ([BEGIN, END], [])


def test_a_camera_that_flickers_fills_no_inbox_and_its_death_is_told_all_the_same(
    watched: Watched,
) -> None:
    for _ in range(50):
        watched.spend(12, "offline")
        watched.spend(50)
    assert watched.told == [BEGIN], "never away for long, but unwatched for 100 s of ten minutes"
    watched.spend(100)
    assert watched.told == [BEGIN, END]
    for _ in range(5):
        watched.spend(200, "offline")
        watched.spend(200)
    assert watched.told == [BEGIN, END], "it came and went before"
    watched.spend(310, "offline")
    assert watched.told == [BEGIN, END, BEGIN]


def test_a_camera_whose_frames_are_dropped_is_a_trouble_and_one_that_never_came_is_too(
    watched: Watched,
) -> None:
    watched.spend(65, shed=10)
    assert watched.told == ["camera door is not watched"]
    assert watched.shown()[0].startswith("camera door is not watched: all frames left out; ")
    watched.status.camera("gate", rate=10.0, threshold=3.0, model="m", zones={})
    watched.spend(70)
    assert watched.told[1:] == [END], "the new camera may still load its networks"
    watched.spend(200)
    assert watched.told[2:] == ["camera gate is offline"]


def test_a_sink_that_fails_is_told_to_everybody_but_itself(watched: Watched) -> None:
    watched.status.sink("notify:a", 3, 9, "the service did not answer")
    watched.store._database.trouble = "no space left on device"
    watched.spend(299)
    assert watched.told == ["events cannot be stored"]
    watched.spend(3)
    assert watched.told[1:] == ["notify:a gets no events"]
    words, sinks = NoticeWords("mill"), [*map("notify:{}".format, "ab")]
    people, target = (
        Scheduler(NotifySettings(to=["browsers"])),
        AppriseTarget.__new__(AppriseTarget),
    )
    made = [Notify(name, target, people, words, watched.store, Path("plan")) for name in sinks]
    fault = Fault(key="sink", words="fails", sink="notify:a")
    for one in made:
        one.trouble(TroubleChange("begin", fault, 0.0, 0.0))
    assert [len(one._troubles) for one in made] == [0, 1]


def test_who_hears_of_troubles() -> None:
    yard = NotifySettings(to=["browsers"], cameras=["yard"])
    assert [yard.hears_of(camera) for camera in ("gate", "yard", "")] == [False, True, True]
    assert not yard.model_copy(update={"troubles": False}).hears_of("")


def test_mail_goes_out_from_memory_while_the_disk_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that is not stored, in quiet hours a trouble, and its end, by real mail."""
    monkeypatch.setattr(plan, "GATHER_S", 0.5)
    with mail_server() as server, small_disk(4) as disk:
        monkeypatch.setenv(
            "MAIL", f"mailto://127.0.0.1:{server.port}?from=a@b.example&to=c@d.example"
        )
        store = Store(tmp_path / "events.db", ["notify:people"])
        people = Scheduler(NotifySettings(to=["browsers"]))
        sink = Notify(
            *("notify:people", AppriseTarget("env:MAIL"), people),
            *(NoticeWords("mill", "http://mill"), store, plan_file(disk.path, "notify:people")),
        )
        delivery = SinkDelivery(store.outbox, sink)
        running = start(delivery)
        subprocess.run(["mount", "-o", "remount,ro", str(disk.path)], check=True)
        fault = Fault(key="store", words="events cannot be stored", detail="x", over="stored again")
        sink.trouble(TroubleChange("begin", fault, 0.0, 5.0))
        wait_until(lambda: len(server.got) == 1, 20)
        assert server.got[0]["subject"] == "mill: events cannot be stored"
        sink.send("new", replace(message("new", None, record(why="arm")), stored=False))
        wait_until(lambda: len(server.got) == 2, 20)
        assert server.got[1]["subject"] == "Yard, gate"
        assert UNSTORED in text_of(server.got[1])
        subprocess.run(["mount", "-o", "remount,rw", str(disk.path)], check=True)
        sink.trouble(TroubleChange("end", fault, 0.0, 840.0))
        wait_until(lambda: len(server.got) == 3, 20)
        assert server.got[2]["subject"] == "mill: stored again, after 14 min"
        wait_until(lambda: record().id in plan_file(disk.path, "notify:people").read_text())
        stop(running, delivery)
        store.close()


def test_a_site_that_fails_all_the_time_is_told_once_an_hour(tmp_path: Path) -> None:
    now = [10_000.0]
    marker = RunMarker(tmp_path / "running", lambda: now[0])
    assert not marker.begin(), "the first start"
    told = []
    for _ in range(90):
        now[0] += 60
        told.append(marker.begin())
    assert [n for n, one in enumerate(told) if one] == [0, 60]
    marker.end()
    assert not marker.begin(), "stopped on purpose"


@pytest.mark.slow
def test_a_killed_site_says_so_and_a_stopped_one_does_not(tmp_path: Path) -> None:
    with web_server() as server:
        server.statuses = [200] * 10
        clip = one_person(60.0, for_s=0.0)
        people = '[[sinks.notify]]\nto = ["env:PEOPLE"]\nquiet_hours = ["00:00-24:00"]\n'
        path = write_site(tmp_path, pose_camera("door", clip, tmp_path), people)
        address = f"json://{server.address.removeprefix('http://')}/hook"
        for killed in (True, False):
            with Running(path, more={"PEOPLE": address}) as site:
                wait_until(lambda: (site.data / "running").exists(), 60)
                first = site.processes()["site"]
                if killed:
                    os.kill(first, signal.SIGKILL)
                    wait_until(lambda: len(server.got) == 1, 60)
                wait_until(lambda: "is watching" in site.log.read_text(), 60)
                assert site.stop() == 0
        (told,) = [json.loads(one.body) for one in server.got]
        assert told["title"] == "test: restarted after a failure"
        assert told["message"].startswith("It watches again; nobody was watched meanwhile. ")


def test_a_model_that_does_not_load_is_told_and_the_other_cameras_are_watched(
    tmp_path: Path,
) -> None:
    clip = one_person(1.0)
    broken = pose_camera("gate", clip, tmp_path, 'model = "broken.safetensors"')
    (tmp_path / "broken.safetensors").write_bytes(b"torn")
    settings = load(write_site(tmp_path, pose_camera("door", clip, tmp_path), broken))
    status, store = LiveStatus(), Store(tmp_path / "events.db")
    pipeline = Pipeline(settings, Models(), status, store)
    assert status.thresholds() == {"door": 20.0, "gate": None}
    found = list(SiteFaults(store, status, "", pipeline.watched.unscored).find())
    assert [one.words for one in found] == ["nobody is judged at camera gate"]
    assert "broken.safetensors" in found[0].detail
    pipeline = Pipeline(load(write_site(tmp_path, broken)), Models(), LiveStatus(), store)
    assert [*pipeline.watched.unscored] == ["gate"], "a site that ended would tell nobody"
    store.close()
