"""A real site with real servers, three cameras with a known anomaly every few seconds each."""

from __future__ import annotations

import configparser
import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stepvad.site.playback import PAUSE_S
from studies.fault_parts.servers import Mailbox, Messages, Subscriber, Webhook, follow
from studies.fault_parts.shim import Shim
from tests.site.sites import Running, Unit, one_person, pose_camera, write_site
from tests.site.test_hanging import Disk
from tests.video.clips import h264_copy, write_images
from tests.video.graphs import movenet, of_bright, yolox
from tests.video.servers import RtspServer, free_port

PERIOD_S, ANOMALY_S, RATE = 12.0, 2.5, 10.0
"""Each camera has an anomaly of this length in each period."""
PLAYED = {"door": 8.0, "yard": 4.0}
"""Cameras that play poses, and where in a period their anomaly begins."""
STREAMED, STREAMED_PHASE_S = "hall", 6.0
CAMERAS = (*PLAYED, STREAMED)
STREAM_S = 360.0
"""Length of what is played, whole periods: then it begins again."""
TOKEN = "a-token-of-the-faults-0123456789"  # noqa: S105  # of a site that lives for a minute
SERVICE = Path(__file__).parents[2] / "deploy" / "stepvad.service"


class StoppedError(Exception):
    """The run is to end."""


@dataclass
class Unseen:
    """A time in which nothing of a camera could be seen."""

    cameras: tuple[str, ...]
    since: float
    until: float = float("inf")
    is_cut: bool = False
    """Whether the connection ends with it; the next one ends this time."""


@dataclass
class Site:
    """A running site, its disk and servers, and what was heard of it."""

    directory: Path
    stopping: threading.Event
    messages: Messages = field(default_factory=Messages)
    ready: list[tuple[float, int, str]] = field(default_factory=list)
    """Answers of /readyz: time, status and words; status 0 is none."""
    unseen: list[Unseen] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """What a fault noticed beside the messages."""
    is_over: threading.Event = field(default_factory=threading.Event)
    """Whether readiness is asked for no more."""

    def __post_init__(self) -> None:
        self.disk = Disk(self.directory / "disk", self.directory / "disk.img")
        self.data = self.disk.place / "data"
        self.webhook, self.mailbox = Webhook(self.messages), Mailbox(self.messages)
        self.subscriber = Subscriber(self.directory / "mosquitto", self.messages)
        self.port = free_port()
        self.running: Running
        self.rtsp: RtspServer

    @contextmanager
    def run(self, stream: Path) -> Iterator[None]:
        """Run it; whatever happens, nothing of it is left."""
        with ExitStack() as stack:
            stack.callback(self.disk.unmount)
            shim = self.shim = Shim(self.directory, self.data)
            self.rtsp = RtspServer(stream, self.directory / "rtsp.log")
            for server in (self.webhook, self.mailbox, self.subscriber):
                stack.callback(server.stop)
                server.start()
            self.rtsp.start()
            stack.callback(self.rtsp.kill)
            over = self.is_over
            file = self.directory / "events.jsonl"
            threads = [
                threading.Thread(target=follow, args=[file, self.messages, over]),
                threading.Thread(target=self._watch_readiness, args=[over]),
            ]
            nowhere = f"http://127.0.0.1:{free_port()}"  # browsers' services are on the internet
            more = {"TOKEN": TOKEN, "CAMERA": self._user, "HTTPS_PROXY": nowhere}
            more |= shim.environment
            with Running(self._write_settings(), more=more, unit=unit()) as self.running:
                for thread in threads:
                    thread.start()
                try:
                    yield
                finally:
                    over.set()
                    for thread in threads:
                        thread.join()

    @property
    def _user(self) -> str:
        return self.rtsp.address.removeprefix("rtsp://").partition("@")[0]

    def _write_settings(self) -> Path:
        cameras = [
            pose_camera(
                name,
                one_person(
                    STREAM_S - PAUSE_S,
                    every_s=PERIOD_S,
                    for_s=ANOMALY_S,
                    phase_s=PERIOD_S - phase,
                    rate=RATE,
                ),
                self.directory,
            )
            for name, phase in PLAYED.items()
        ]
        cameras.append(
            f'[[cameras]]\nname = "{STREAMED}"\nurl = "rtsp://127.0.0.1:{self.rtsp.port}/camera"\n'
            f'credentials = "env:CAMERA"\nrate = {RATE}\nthreshold = 20.0\n'
        )
        address = self.directory / "guards"
        address.write_text(
            f"mailto://127.0.0.1:{self.mailbox.port}?to=guard@example.org&from=site@example.org\n"
        )
        address.chmod(0o600)
        more = (
            f'[web]\nport = {self.port}\ntoken = "env:TOKEN"\n'
            f'[sinks.mqtt]\nhost = "127.0.0.1"\nport = {self.subscriber.broker.port}\n'
            f'[sinks.file]\npath = "events.jsonl"\n'
            f'[[sinks.webhooks]]\nurl = "http://127.0.0.1:{self.webhook.port}/events"\n'
            '[[sinks.notify]]\nname = "guards"\nto = ["file:guards", "browsers"]\n'
            "most_per_hour = 1000\n"
        )
        head = 'data = "disk/data"'
        return write_site(
            self.directory, *cameras, _write_networks(self.directory), more=more, head=head
        )

    def _watch_readiness(self, over: threading.Event) -> None:
        while not over.wait(0.5):
            status, words = self.get("/readyz", timeout_s=2)
            if over.is_set():
                return
            self.ready.append((time.time(), status, words.strip()))

    def get(self, path: str, *, timeout_s: float = 10.0) -> tuple[int, str]:
        """Ask the page with the token; 0 is no answer."""
        return self.request("GET", path, {"Authorization": f"Bearer {TOKEN}"}, timeout_s=timeout_s)[
            :2
        ]

    def request(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: str | None = None,
        *,
        source: str = "127.0.0.1",
        timeout_s: float = 10.0,
    ) -> tuple[int, str, dict[str, str]]:
        """Ask the page from an address of the loopback interface."""
        page = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=timeout_s, source_address=(source, 0)
        )
        try:
            with closing(page):
                page.request(method, path, body, headers)
                answer = page.getresponse()
                return answer.status, answer.read().decode(), dict(answer.getheaders())
        except (OSError, http.client.HTTPException):
            return 0, "", {}

    def wait(self, seconds: float) -> None:
        """Wait, unless all is to end."""
        if self.stopping.wait(seconds):
            raise StoppedError

    def pid(self, name: str) -> int:
        """A process by name, once it is there."""
        while (pid := self.running.processes().get(name)) is None:
            self.wait(0.1)
        return pid

    def cut(self, *cameras: str) -> None:
        """Note that connections of cameras end now."""
        self.unseen.append(Unseen(cameras, time.time(), is_cut=True))

    @contextmanager
    def blind(self, *cameras: str) -> Iterator[None]:
        """A time in which these cameras cannot be seen."""
        gap = Unseen(cameras, time.time())
        self.unseen.append(gap)
        try:
            yield
        finally:
            gap.until = time.time()

    def scored(self, camera: str) -> int | None:
        """How many frames of a camera were scored; None if nobody answers."""
        status, words = self.get(f"/api/cameras/{camera}")
        return int(json.loads(words)["counts"]["scored"]) if status == 200 else None

    def is_replaced(self, name: str, pid: int) -> bool:
        """Whether another process has this name now."""
        return self.running.processes().get(name, pid) != pid


def unit() -> Unit:
    """What the unit that is shipped says."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(SERVICE)
    service = parser["Service"]
    return Unit(float(service["WatchdogSec"]), float(service["RestartSec"]), always=True)


def write_stream(directory: Path) -> Path:
    """A dark stream in which somebody bright moves to and fro while there is an anomaly."""
    images = np.zeros((round(STREAM_S * RATE), 48, 64, 3), np.uint8)
    body = np.random.default_rng(3).integers(120, 250, (48, 44, 3), np.uint8)
    for n, image in enumerate(images):
        at = n / RATE % PERIOD_S
        if STREAMED_PHASE_S <= at < STREAMED_PHASE_S + ANOMALY_S:
            left = 6 + abs(n % 8 - 4) * 2
            image[:, left : left + 44] = body
    return h264_copy(write_images(directory / "stream.mkv", images), directory / "stream-h264.mkv")


def _write_networks(directory: Path) -> str:
    """Networks that see one person in bright pictures, always the same, as settings."""
    cell = [0.0, 0.0, float(np.log(3)), float(np.log(4)), 0.95, 0.95]
    of_bright(yolox(directory / "yolox_tiny.onnx", {36: cell}), "output")
    joints = np.random.default_rng(3).uniform(0.1, 0.9, (17, 3)).astype(np.float32)
    joints[:, 2] = 0.9
    of_bright(movenet(directory / "movenet_tiny.onnx", joints), "Identity")
    return '[pose]\ndetector = "yolox_tiny.onnx"\npose = "movenet_tiny.onnx"\n'
