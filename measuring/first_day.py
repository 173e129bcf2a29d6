"""A new operator's first day: a stop-watch, the commands of a wheel, and a camera."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from measuring import tables
from tests.browser import NavigatedError, Page
from tests.video.servers import CANARY, RtspServer

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
        return tables.markdown(["step", "seconds"], rows, words=[0])

    def photograph(self, page: Page, name: str) -> None:
        """What the page looks like on a desk and on a phone; it stays at the phone's width."""
        self.pictures.mkdir(parents=True, exist_ok=True)
        for width in WIDTHS:
            resize(page, width)
            time.sleep(0.5)  # until the canvases are drawn in their new size
            page.picture(self.pictures / f"{name}-{width}.png", whole=False)


def resize(page: Page, width: int) -> None:
    """Give the page the screen of a desk or a phone."""
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=WIDTHS[width],
        deviceScaleFactor=1,
        mobile=False,
    )


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
            return bool(page.run(script))
        except NavigatedError:
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
