"""Settings saved on the page of a site that watches two real streams, and what nobody sees then.

The figures are logged: `pytest -o log_cli=true -o log_cli_level=INFO`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from stepvad.site.app import Site
from stepvad.site.settings.changes import compare
from stepvad.site.settings.file import load
from tests.site.receivers import web_server
from tests.site.sites import (
    Running,
    busy_person,
    lines,
    pose_camera,
    write_networks,
    write_site,
)
from tests.video.clips import write_video
from tests.video.servers import CANARY, SLOWER, RtspServer, free_port, has_rtsp_server, wait_until
from tests.web.sites import TOKEN

logger = logging.getLogger(__name__)

pytestmark = pytest.mark.slow

CAMERA = """\
[[cameras]]
name = "{name}"
url = "rtsp://127.0.0.1:{port}/camera"
credentials = "file:camera"
rate = 10.0
threshold = 20.0
zones.near = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
"""
NOTIFY = """\
[[sinks.notify]]
name = "night"
to = ["env:PEOPLE"]
"""


@dataclass
class Frames:
    """Frames of one camera as its page counts them, and when they were scored."""

    at: list[float] = field(default_factory=list)
    """Monotonic times at which the count of scored frames was seen to grow."""
    dropped: int = 0
    scored: int = 0
    _last: int = 0

    def saw(self, counts: dict[str, int], now: float) -> None:
        scored = counts["scored"]
        self.scored += max(scored - self._last, 0)
        if scored != self._last:
            self.at.append(now)
        self._last = scored
        self.dropped = counts["shed"] + counts["skipped"]

    def blind_s(self, since: float) -> float:
        """The longest time without a scored frame."""
        times = [since, *(at for at in self.at if at > since)]
        return max(b - a for a, b in pairwise(times))


class Mill:
    """A running site with its page, and somebody who counts its frames."""

    def __init__(self, running: Running, file: Path, port: int) -> None:
        self.running, self.file, self.url = running, file, f"http://127.0.0.1:{port}"
        self.frames = {"left": Frames(), "right": Frames()}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"})

    def _count(self) -> None:
        with self.client() as client:
            while not self._over.wait(0.05):
                with suppress(httpx.HTTPError):
                    found = client.get("/api/cameras", timeout=5).json()
                    now = time.monotonic()
                    for one in found:
                        self.frames[one["name"]].saw(one["counts"], now)

    def get(self, path: str) -> Any:
        with self.client() as client:
            return client.get(path, timeout=60).json()

    def save(self, what: str, edit: Callable[[str], str], effect: str = "live") -> None:
        """Save a change of the text, see both cameras watched afterwards, and log what it cost."""
        now, before = self.get("/api/settings"), deepcopy(self.frames)
        body = {"digest": now["digest"], "text": edit(now["text"])}
        assert body["text"] != now["text"]
        with self.client() as client:
            said = client.post("/api/settings/effect", json={"text": body["text"]}).json()
            began = time.monotonic()
            answer = client.put("/api/settings", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        assert said == {"effect": effect, "words": answer.json()["words"]}
        took_s = time.monotonic() - began
        for name, frames in self.frames.items():
            self.sees(name, time.monotonic())
            expected = 10.0 * (frames.at[-1] - before[name].at[-1])
            missing = expected - (frames.scored - before[name].scored)
            logger.info(
                "%s, saved in %.1f s: camera %s blind for %.2f s, %.0f of %.0f frames not scored, "
                "%d dropped",
                *(what, took_s, name, frames.blind_s(began), max(missing, 0), expected),
                frames.dropped - before[name].dropped,
            )
            assert frames.blind_s(began) < 5 * SLOWER, what

    def is_open(self, camera: str) -> bool:
        return any(one.is_open and one.camera == camera for one in self.running.events())

    def wait_for_event(self, camera: str, zone: str) -> None:
        """Wait for an event of a camera in a zone."""

        def is_there() -> bool:
            found = self.running.events()
            return any(one.camera == camera and zone in one.zones for one in found)

        wait_until(is_there, 60 * SLOWER)

    def sees(self, name: str, since: float, frames: int = 10) -> None:
        """Wait until a camera is watched, some frames after a time."""
        wait_until(lambda: sum(at > since for at in self.frames[name].at) > frames, 120)

    def __enter__(self) -> Mill:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()


@contextmanager
def mill(directory: Path) -> Iterator[tuple[Mill, list[RtspServer]]]:
    """A site of two streams, and the server of a third."""
    clip = write_video(directory / "source.mkv", codec="libx264", n_frames=200)
    servers = [RtspServer(clip, directory / f"rtsp-{n}.log") for n in range(3)]
    (directory / "camera").write_text(f"viewer:{CANARY}")
    (directory / "token").write_text(TOKEN)
    for secret in ("camera", "token"):
        (directory / secret).chmod(0o600)
    cameras = [
        CAMERA.format(name=name, port=server.port)
        for name, server in zip(("left", "right"), servers, strict=False)
    ]
    port = free_port()
    page = f'[web]\nport = {port}\ntoken = "file:token"\n'
    try:
        for server in servers:
            server.start()
        networks = write_networks(directory)
        file = write_site(directory, *cameras, networks, NOTIFY, more=page)
        with (
            Running(file, more={"PEOPLE": "json://127.0.0.1:9/"}) as running,
            Mill(running, file, port) as site,
        ):
            for name in site.frames:
                site.sees(name, 0.0)
            yield site, servers
    finally:
        for server in servers:
            server.kill()


@pytest.mark.skipif(not has_rtsp_server(), reason="needs GStreamer's RTSP server")
def test_saved_settings_apply_while_both_cameras_are_watched(tmp_path: Path) -> None:
    """Zones, limits, hours, sinks and an address, one after another, on the page's own route."""
    told = tmp_path / "told.jsonl"
    with mill(tmp_path) as (site, servers):
        processes = site.running.processes()
        site.wait_for_event("left", "near")
        site.save("zone", lambda text: text.replace("zones.near", "zones.door", 1))
        assert [[*one["zones"]] for one in site.get("/api/cameras")] == [["door"], ["near"]]
        # a limit that nothing reaches ends the event, as calm
        open_now = [one.id for one in site.running.events() if one.camera == "left" and one.is_open]
        site.save("limit", lambda text: text.replace("threshold = 20.0", "threshold = 1e6", 1))
        wait_until(lambda: not site.is_open("left"), 60 * SLOWER)
        ended = {one.id: one.ended_by for one in site.running.events()}
        assert {ended[id] for id in open_now} <= {"calm"}
        # recipients and their hours; a sink that is new hears of the next event
        quiet = 'name = "night"\nquiet_hours = ["01:00-02:00"]'
        site.save("quiet hours", lambda text: text.replace('name = "night"', quiet))
        assert "01:00-02:00" in str(site.get("/api/notifications"))
        sink = f'[sinks.file]\npath = "{told}"\n\n[web]'
        site.save("sink", lambda text: text.replace("[web]", sink))
        site.save("limit back", lambda text: text.replace("threshold = 1e6", "threshold = 20.0"))
        wait_until(lambda: "left" in {line["after"]["camera"] for line in lines(told)}, 60 * SLOWER)
        site.wait_for_event("left", "door")
        assert site.running.processes() == processes
        # one address, by hand because a password goes there: the next save opens it, and alone
        before, after = (f":{server.port}/" for server in servers[1:])
        site.file.write_text(site.file.read_text().replace(before, after))
        site.save("address", lambda text: f"{text}# moved\n", "reopen")
        assert site.running.processes() == processes
        left, right = ({**one["counts"]} for one in site.get("/api/cameras"))
        assert (left["restarts"], right["reconnects"], right["restarts"]) == (0, 0, 0)
        assert site.running.log.read_text().count("is watching") == 1


def test_a_changed_webhook_gets_what_the_former_one_did_not(tmp_path: Path) -> None:
    camera = pose_camera("door", busy_person(), tmp_path)
    hook = '[[sinks.webhooks]]\nname = "desk"\nurl = "{}/hook"\n'
    stop = threading.Event()
    with web_server() as server:
        wrong, right, none = (
            load(write_site(tmp_path, camera, sink))
            for sink in (hook.format("http://127.0.0.1:9"), hook.format(server.address), "")
        )
        site = Site(wrong)
        running = threading.Thread(target=site.run, args=[stop])
        running.start()
        wait_until(lambda: site.store.outbox.lag("webhook:desk") > 0, 60)
        assert site.apply(right, compare(wrong, right)) == []
        wait_until(lambda: site.store.outbox.lag("webhook:desk") == 0)
        told = [json.loads(one.body) for one in server.got]
        assert told[0]["type"] == "dev.stepvad.event.new"
        # a sink that is removed gets no more, and is shown no more
        assert site.apply(none, compare(right, none)) == []
        assert site.store.sinks == ()
        assert site.status.snapshot().sinks == ()
        stop.set()
        running.join(30)
    assert len({one["id"] for one in told}) == len(told)
