r"""A stop-watch for a new operator's first day: from `pip install` to an alert on a phone.

Everything is real: the wheel in a new environment, an RTSP server, a mail server, an MQTT broker,
a browser.

    python -m studies first-day --wheel W.whl --networks DIR \
        --video NORMAL --odd ODD --pictures DIR
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import Error, Page

from studies.figures import markdown
from tests.browser import launched, new_page
from tests.site.notify.services import MailServer, mail_server, text_of
from tests.site.receivers import Broker
from tests.video.servers import CANARY, RtspServer, free_port

if TYPE_CHECKING:
    from av import VideoFrame


GOAL_S = 600.0
WIDTHS = {1280: 800, 390: 844}
"""Screens of a desk and of a phone, in pixels."""
BLACK_S = 3.5
"""Between two videos; all tracks end within it."""
MS = Fraction(1, 1000)
LINK = re.compile(r"open (http\S+) to log in")


class TooLateError(Exception):
    """Something did not happen within its time."""


@dataclass
class StopWatch:
    """Steps of the day and how long each took."""

    pictures: Path
    say: Callable[[str], None]
    steps: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block as one step; what comes between two blocks does not count."""
        began = time.monotonic()
        yield
        took_s = time.monotonic() - began
        self.steps.append((name, took_s))
        self.say(f"{took_s:7.1f} s  {name}")

    def table(self) -> str:
        """The steps as Markdown, with their sum and the goal."""
        rows = [[name, f"{took_s:.1f}"] for name, took_s in self.steps]
        total_s = sum(took_s for _, took_s in self.steps)
        rows.append([f"**in all** (goal: {GOAL_S:.0f})", f"**{total_s:.0f}**"])
        return markdown(["step", "seconds"], rows, words=[0])

    def photograph(self, page: Page, name: str) -> None:
        """What the page looks like on a desk and on a phone; it stays at the phone's width."""
        self.pictures.mkdir(parents=True, exist_ok=True)
        for width in WIDTHS:
            resize(page, width)
            time.sleep(0.5)  # until the canvases are drawn in their new size
            page.screenshot(path=self.pictures / f"{name}-{width}.png")


def resize(page: Page, width: int) -> None:
    """Give the page the screen of a desk or a phone."""
    page.set_viewport_size({"width": width, "height": WIDTHS[width]})


def wait_for(happened: Callable[[], object], limit_s: float, what: str) -> None:
    """Wait until something happens; raises `TooLateError` if it takes too long."""
    late = time.monotonic() + limit_s
    while not happened():
        if time.monotonic() > late:
            raise TooLateError(f"{what}: expected within {limit_s:.0f} s")
        time.sleep(0.1)


def shows(page: Page, script: str) -> Callable[[], bool]:
    """Whether an expression is true in a page, also while the page is replaced."""

    def look() -> bool:
        try:
            return bool(page.evaluate(script))
        except Error:
            return False

    return look


@dataclass
class Installed:
    """An environment with the wheel, and a directory in which its commands run."""

    environment: Path
    directory: Path

    def install(self, watch: StopWatch, wheel: Path, extras: str) -> None:
        """Make it as the guide says."""
        pip = [str(self.environment / "bin/python"), "-m", "pip", "install", "--quiet"]
        with watch.step("`pip install torch`, into a new environment"):
            _run(["python3", "-m", "venv", str(self.environment)])
            _run([*pip, "torch==2.13.0"])
        with watch.step(f"`pip install 'stepvad[{extras}]'`"):
            _run([*pip, f"{wheel.absolute()}[{extras}]"])

    def command(self, *words: str) -> str:
        """What a command prints; raises if it fails."""
        return _run([str(self.environment / "bin/stepvad"), *words], cwd=self.directory)

    @contextmanager
    def watching(self, log: Path, *words: str) -> Iterator[Path]:
        """`stepvad watch` until the block ends, then Ctrl-C; yields its log."""
        command = [str(self.environment / "bin/stepvad"), "watch", *words]
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=self.directory, env=environment(), stdout=file, stderr=file
            )
        try:
            yield log
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def environment() -> dict[str, str]:
    """The environment of an operator: nothing of this checkout, and the camera's password."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"DOOR_CAMERA": f"viewer:{CANARY}"}


def _run(words: Sequence[str], cwd: Path | None = None) -> str:
    done = subprocess.run(
        words, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=1800
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def link_in(log: Path, limit_s: float = 120.0) -> str:
    """The one-time link that a site writes into its log."""
    wait_for(lambda: LINK.search(log.read_text()), limit_s, "a link in the log")
    return LINK.findall(log.read_text())[0]


class Camera:
    """A real RTSP server that plays one video in a loop, and then another."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "camera.mkv"
        self._server = RtspServer(self._file, directory / "camera.log")
        self._playing = False

    @property
    def url(self) -> str:
        """Its address, without the password."""
        return f"rtsp://{self._server.address.partition('@')[2]}"

    def play(self, film: Path) -> None:
        """Play this film from now on; whoever is connected has to connect again."""
        self.stop()
        self._file.unlink(missing_ok=True)
        os.link(film, self._file)
        self._server.start()
        self._playing = True

    def stop(self) -> None:
        """Switch it off."""
        if self._playing:
            self._server.kill()
        self._playing = False


def film_of(videos: Sequence[Path], path: Path) -> Path:
    """Videos one after the other as a camera sends them, in the size of the first.

    Each plays at its own speed. Black separates them, so that a cut is not taken for a motion.
    """
    import av

    with av.open(str(videos[0])) as first:
        size = first.streams.video[0].width, first.streams.video[0].height
    with av.open(str(path), "w") as target:
        stream = target.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.options = {"preset": "ultrafast", "tune": "zerolatency", "crf": "20"}
        stream.codec_context.time_base = MS
        stream.codec_context.gop_size = 15
        for time_s, frame in _frames(videos, size):
            copy = frame.reformat(*size, "yuv420p")
            copy.pts, copy.time_base = round(1000 * time_s), MS
            target.mux(stream.encode(copy))
        target.mux(stream.encode())
    return path


def _frames(videos: Sequence[Path], size: tuple[int, int]) -> Iterator[tuple[float, VideoFrame]]:
    """The frames of all videos with their times, and black after each."""
    import av

    black = av.VideoFrame.from_ndarray(np.zeros((size[1], size[0], 3), np.uint8), format="rgb24")
    begin_s = 0.0
    for video in videos:
        with av.open(str(video)) as source:
            rate = float(source.streams.video[0].average_rate or 10)
            for number, frame in enumerate(source.decode(video=0)):
                yield begin_s + number / rate, frame
        begin_s += (number + 1) / rate
        yield from ((begin_s + k / rate, black) for k in range(round(BLACK_S * rate)))
        begin_s += BLACK_S


SITE = """name = "shop"

[[cameras]]
name = "door"
url = "{url}"
credentials = "env:DOOR_CAMERA"
rate = {rate:g}

[pose]
detector = "{detector}"
pose = "{pose}"

[web]
port = {port}

[[sinks.notify]]
to = ["file:mail-address"]

[sinks.mqtt]
host = "127.0.0.1"
port = {broker}
"""
MOVING = "document.querySelector('.camera')?.dataset.drawn > 5"
PEOPLE = (
    f"{MOVING} && /[1-9]\\d* (person|people)/.test(document.querySelector('.numbers').textContent)"
)
LIMIT = "document.querySelector('.limit')?.textContent"
PROVISIONAL = f"{LIMIT}?.includes('provisional')"
EVENTS = "[...document.querySelectorAll('#list li')].map((row) => row.dataset.id)"
WORDS = "document.querySelector('#event[open] .words li')"
EXPLAINED = f"!!{WORDS} && !!document.querySelector('#event .stage')"


def say(line: str) -> None:
    """Print at once, also into a file."""
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and stop all that was started
    options.pictures.mkdir(parents=True, exist_ok=True)
    watch = StopWatch(options.pictures, say)
    try:
        with tempfile.TemporaryDirectory() as name, launched() as browser:
            _day(options, watch, new_page(browser), Path(name))
    finally:
        print(f"\n{watch.table()}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--extras", default="train,video,web,notify", help="as the guide says")
    parser.add_argument("--networks", type=Path, required=True, help="where the ONNX files are")
    parser.add_argument("--detector", default="yolox_nano.onnx", help="its name there")
    parser.add_argument("--pose", default="movenet-lightning.onnx", help="its name there")
    parser.add_argument("--rate", type=float, default=10.0, help="frames per second to score")
    parser.add_argument("--video", type=Path, nargs="+", required=True, help="normal life")
    parser.add_argument("--odd", type=Path, nargs="+", required=True, help="a fall, a fight")
    parser.add_argument("--pictures", type=Path, required=True, help="where pictures and logs go")
    parser.add_argument("--installed", type=Path, help="use this environment, install nothing")
    parser.add_argument("--skip-demo", action="store_true")
    parser.add_argument("--learn-minutes", type=float, default=20.0, help="longest wait to learn")
    parser.add_argument("--odd-minutes", type=float, default=4.0, help="longest wait to alert")
    return parser.parse_args(arguments)


def _day(options: argparse.Namespace, watch: StopWatch, page: Page, scratch: Path) -> None:
    """The whole day, in an empty directory."""
    directory = scratch / "operator"
    directory.mkdir()
    installed = Installed(options.installed or scratch / "environment", directory)
    if options.installed is None:
        installed.install(watch, options.wheel, options.extras)
    if not options.skip_demo:
        _demo(watch, installed, page)
    normal = film_of(options.video, scratch / "normal.mkv")
    odd = film_of(options.odd, scratch / "odd.mkv")
    with surroundings(scratch) as around:
        around.camera.play(normal)
        _write_settings(options, directory, around)
        with _site(watch, installed, around) as link:
            _learn(options, watch, page, link)
            _alert(options, watch, page, around, odd)


def _demo(watch: StopWatch, installed: Installed, page: Page) -> None:
    """People who move, and somebody who falls, without a camera."""
    log = watch.pictures / "demo.log"
    with ExitStack() as stack:
        with watch.step("`stepvad watch --demo`, until its log shows the link"):
            stack.enter_context(installed.watching(log, "--demo", "--port", str(free_port())))
            link = link_in(log)
        with watch.step("log in; people move on the page"):
            _log_in(page, link)
            wait_for(shows(page, PEOPLE), 60, "people who move")
        watch.photograph(page, "1-demo-people")
        with watch.step("the first event of the demo is listed"):
            wait_for(shows(page, f"{EVENTS}.length"), 120, "an event of the demo")
        watch.photograph(page, "2-demo-event")


def _log_in(page: Page, link: str, account: str = "") -> None:
    """Through the one-time link, with an account if it has a name."""
    resize(page, 1280)
    page.goto(link)
    if not account:
        page.locator("button.second").click()
        return
    page.fill("#name", account)
    page.fill("#password", "correct horse battery")
    page.keyboard.press("Enter")


@dataclass
class Surroundings:
    """What an operator has already: a camera, a mailbox, a broker."""

    camera: Camera
    mail: MailServer
    broker: Broker
    events: list[dict[str, object]] = field(default_factory=list)
    """Events that somebody who listens to the broker has heard of."""


@contextmanager
def surroundings(scratch: Path) -> Iterator[Surroundings]:
    """Real servers on the loopback interface."""
    broker, camera = Broker(scratch), Camera(scratch)
    broker.start()
    listener = mqtt.Client(CallbackAPIVersion.VERSION2)
    try:
        with mail_server() as mail:
            around = Surroundings(camera, mail, broker)
            listener.on_message = lambda *args: around.events.append(json.loads(args[2].payload))
            listener.connect("127.0.0.1", broker.port)
            listener.subscribe("stepvad/events")
            listener.loop_start()
            yield around
    finally:
        listener.loop_stop()
        camera.stop()
        broker.stop()


def _write_settings(options: argparse.Namespace, directory: Path, around: Surroundings) -> None:
    """The two files that an operator writes."""
    networks = options.networks.absolute()
    address = f"mailto://127.0.0.1:{around.mail.port}?to=guard@example.org&from=site@example.org"
    (directory / "mail-address").write_text(address)
    (directory / "mail-address").chmod(0o600)
    text = SITE.format(
        url=around.camera.url,
        rate=options.rate,
        detector=networks / options.detector,
        pose=networks / options.pose,
        port=free_port(),
        broker=around.broker.port,
    )
    (directory / "site.toml").write_text(text)


@contextmanager
def _site(watch: StopWatch, installed: Installed, around: Surroundings) -> Iterator[str]:
    """The operator's own site, checked and started; yields the link to log in."""
    with watch.step("`stepvad watch site.toml --check`"):
        said = installed.command("watch", "site.toml", "--check")
    (watch.pictures / "check.txt").write_text(said)
    with watch.step("`stepvad watch site.toml --check --send-test`, until the test mail is there"):
        installed.command("watch", "site.toml", "--check", "--send-test")
        wait_for(lambda: around.mail.got, 60, "a test mail")
    log = watch.pictures / "site.log"
    with ExitStack() as stack:
        with watch.step("`stepvad watch site.toml`, until its log shows the link"):
            stack.enter_context(installed.watching(log, "site.toml"))
            link = link_in(log)
        yield link


def _learn(options: argparse.Namespace, watch: StopWatch, page: Page, link: str) -> None:
    """The site looks at normal life until it has a limit."""
    with watch.step("make an account; the camera is online, its people move on the page"):
        _log_in(page, link, account="operator")
        wait_for(shows(page, PEOPLE), 120, "people of the camera")
    watch.photograph(page, "3-camera-online")
    with watch.step("the site learns, until the page shows a provisional limit"):
        time.sleep(30.0)
        watch.photograph(page, "4-learning")
        wait_for(shows(page, PROVISIONAL), options.learn_minutes * 60, "a provisional limit")
    with suppress(TooLateError):  # the site starts again with its model, and so does its camera
        wait_for(shows(page, PEOPLE), 20, "people again")
    watch.photograph(page, "5-provisional")


def _alert(
    options: argparse.Namespace, watch: StopWatch, page: Page, around: Surroundings, odd: Path
) -> None:
    """Something happens before the camera; it is on a phone, in a mailbox and at the broker."""
    before = set(page.evaluate(EVENTS))
    mails, told, limit_s = len(around.mail.got), len(around.events), options.odd_minutes * 60
    say(f"           {len(before)} events in normal life")
    resize(page, 390)
    new = f"{EVENTS}.filter((id) => !{json.dumps([*before])}.includes(id))"
    with watch.step("something happens; its event is listed on a phone"):
        around.camera.play(odd)
        wait_for(shows(page, f"{new}.length"), limit_s, "an event")
    with watch.step("the mail is in the mailbox"):
        wait_for(lambda: len(around.mail.got) > mails, 120, "a mail")
    with watch.step("the event is at the broker"):
        wait_for(lambda: len(around.events) > told, 120, "an event over MQTT")
    with watch.step("a tap on it; its explanation is open"):
        page.evaluate(f'document.querySelector(`#list li[data-id="${{{new}[0]}}"] a`).click()')
        wait_for(shows(page, EXPLAINED), limit_s, "an explanation")
    watch.photograph(page, "6-explained")
    _tell(watch, around, mails, told)


def _tell(watch: StopWatch, around: Surroundings, mails: int, told: int) -> None:
    """Keep what a person was told, to read it."""
    mail = around.mail.got[mails]
    (watch.pictures / "mail.txt").write_text(f"{mail['Subject']}\n\n{text_of(mail)}")
    (watch.pictures / "mqtt.json").write_text(json.dumps(around.events[told], indent=2))
