"""Frames of a live camera, remote or attached, reopened when it fails."""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl

from stepvad.errors import ConfigError, DataError
from stepvad.retries import Backoff
from stepvad.video.source import (
    BOUNDED,
    UNDECODED,
    Decoder,
    DecodeStats,
    Frame,
    decoding_errors,
    pyav,
    video_stream,
)
from stepvad.video.url import PORTS, Url, check_server, warn_if_insecure

logger = logging.getLogger(__name__)
LinkState = Literal["offline", "online"]
STALL_S = 4.0
"""Seconds without a frame after which a stream counts as lost."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 3.0
"""Back-off between connection attempts; the longest leaves 2 s to reconnect within 5 s."""
PATIENCE = (1, 2, 1, 4)
"""Timeout to the first frame, in units of `STALL_S`, by the number of failed attempts.

Some cameras are slow to respond, or send a key frame only every ten seconds.
"""
LONGEST_ATTEMPT_S = 3 * max(PATIENCE) * STALL_S + LONGEST_WAIT_S
"""Longest time between two attempts: TLS check, opening, first frame and back-off.

Looking up the name of a camera comes on top, and only the system limits that.
"""
HINT = "check the path in its address"
STREAM_FORMATS = "mpjpeg,mjpeg,jpeg_pipe,mpegts,h264,hevc,flv,mov,matroska,webm,mpeg,avi,asf,ogg"
"""FFmpeg's formats that hold pictures themselves, read over HTTP; playlists such as HLS do not."""
BUFFER = 8
"""Frames buffered for a slow consumer: 0.4 s at 20 frames per second; older ones are stale."""

PREFIXES = ("/dev/video", "/dev/v4l/", "usb:")
"""Prefixes of the addresses of attached cameras."""
_ADDRESS = re.compile(r"(?P<file>[^?]+)(?:\?(?P<options>.*))?", re.DOTALL)
_SIZE = re.compile(r"[1-9]\d{1,4}x[1-9]\d{1,4}")
_RATE = re.compile(r"[1-9]\d{0,2}(\.\d+)?")
_REASONS = {
    errno.ENOENT: (
        "no such device",
        "plug the camera in; v4l2-ctl --list-devices shows what is there",
    ),
    errno.EACCES: (
        "no permission",
        "add the user to the group video (sudo usermod -aG video NAME), then log in again",
    ),
    errno.EBUSY: (
        "a device that another program uses",
        "close that program; fuser DEVICE shows which it is",
    ),
}
_REASONS[errno.ENODEV] = _REASONS[errno.ENXIO] = _REASONS[errno.ENOENT]
_REASONS[errno.EPERM] = _REASONS[errno.EACCES]
_NO_CAMERA = "another device of the camera may have the picture: v4l2-ctl --list-devices"


class Camera:
    """The frames of a network camera or an attached one; reconnects whenever the stream is lost.

    Iterating connects. Iteration continues until `stop` is called, from any thread. A background
    thread decodes and buffers the latest frames: a slow consumer loses frames instead of falling
    behind. From that thread `on_attempt` is called before each attempt to connect, and `on_state`
    after each change of state. Credentials never appear in messages.
    """

    def __init__(
        self,
        name: str,
        url: Url | Device | str,
        *,
        on_state: Callable[[StateChange], None] = lambda change: None,
        on_attempt: Callable[[], None] = lambda: None,
        stall_s: float = STALL_S,
        buffer: int = BUFFER,
    ) -> None:
        pyav()
        self.name = name
        self.url = Url(url) if isinstance(url, str) else url
        self._on_state, self._on_attempt = on_state, on_attempt
        self._stall_s = stall_s
        self._counts = CameraCounts()
        self._state: LinkState | None = None
        self._epoch = -1
        self._in_vain = 0
        self._skipped_before = 0
        self._frames: deque[Frame] = deque()
        self._buffer = buffer
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        return f"Camera({self.name!r}, {self.url!r}, {self.state})"

    @property
    def state(self) -> LinkState:
        """`online` from the first frame of a connection until it is lost."""
        return self._state or "offline"

    @property
    def counts(self) -> CameraCounts:
        """The counters so far."""
        return replace(self._counts)

    def stop(self) -> None:
        """Stop iterating now; the connection closes as soon as its pending read returns."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Frame]:
        if self._thread is not None:
            raise DataError(
                f"camera {self.name}: expected one iteration, got a second",
                hint="create another Camera",
            )
        if isinstance(self.url, Url):
            warn_if_insecure(self.name, self.url.reveal(), self.url.tls)
        self._thread = threading.Thread(target=self._run, name=f"camera-{self.name}", daemon=True)
        self._thread.start()
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._frames or self._stopped.is_set())
                    if self._failure is not None:
                        raise self._failure
                    if self._stopped.is_set():
                        return
                    frame = self._frames.popleft()
                yield frame
        finally:
            self.stop()

    def _run(self) -> None:
        """Reconnect until stopped."""
        try:
            with _CapturedLog(self.url) as log:
                self._connect_until_stopped(log)
        except Exception as error:  # a failing callback stops the iteration, not only this thread
            self._failure = error
        finally:
            self.stop()

    def _connect_until_stopped(self, log: _CapturedLog) -> None:
        backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
        while not self._stopped.is_set():
            # one connection, from the attempt until it is lost
            decoded = self._counts.decoded
            self._on_attempt()
            reason = self._session(log)
            # frames that did not decode say more about a lost connection than its end does
            undecoded = self._counts.skipped - self._skipped_before
            if undecoded:
                reason += f": {undecoded} did not decode, {UNDECODED}"
            if self._stopped.is_set():
                reason = "stopped"
            self._report("offline", reason)
            # a connection that gave frames is followed up at once, others with back-off
            if self._counts.decoded > decoded:
                self._in_vain = 0
                backoff.reset()
            else:
                self._in_vain += 1
            backoff.wait(self._stopped)

    def _session(self, log: _CapturedLog) -> str:
        """Open one connection, read it until it closes and return the reason."""
        self._epoch += 1
        self._skipped_before = self._counts.skipped
        try:
            with self._opened() as container:
                return self._read(container, log)
        except (ConfigError, DataError) as error:
            return self.url.redact(str(error))
        except decoding_errors() as error:
            if isinstance(error, TimeoutError | pyav().error.ExitError):
                return f"no answer for {self._limit_s():g} s"
            words = self.url.redact(getattr(error, "strerror", None) or str(error))
            is_refused = getattr(error, "errno", 0) in (errno.EIO, errno.EINVAL)
            if is_refused and isinstance(self.url, Url) and self.url.scheme in ("http", "https"):
                words += "; redirects and playlists (HLS) are not followed"
            return words
        finally:
            log.forward()

    def _opened(self) -> Any:
        """Connect to a server that may receive the password, with read timeouts."""
        # timeouts of opening and of every later read
        limit, first = max(self._stall_s, 0.1), max(self._limit_s(), 0.1)
        if isinstance(self.url, Device):
            return self.url.open((first, limit))
        check_server(pyav(), self.url.reveal(), self.url.tls, first)
        options = _url_options(self.url, first)
        return pyav().open(self.url.reveal(), options=options, timeout=(first, limit))

    def _limit_s(self) -> float:
        """Timeout of the next frame; the first of a connection may get longer (`PATIENCE`)."""
        if self._state == "online":
            return self._stall_s
        return self._stall_s * PATIENCE[self._in_vain % len(PATIENCE)]

    def _read(self, container: Any, log: _CapturedLog) -> str:
        """Decode until the stream ends, stalls or is stopped; return the reason."""
        stream = video_stream(container, f"camera {self.name}", hint=HINT)
        stream.thread_type = "SLICE"  # frame threading would delay frames
        decoder = Decoder(self._counts)
        latest = time.monotonic()
        for packet in container.demux():
            log.forward()
            # measured before decoding: FFmpeg returns its last packet after the read timed out.
            silent_s = time.monotonic() - latest
            if packet.stream.index == stream.index:
                for picture in decoder.pictures(packet.decode):
                    latest, self._skipped_before = time.monotonic(), self._counts.skipped
                    number, now = self._counts.decoded - 1, time.time()
                    frame = Frame(self.name, number, picture.pts, now, picture, self._epoch)
                    self._keep(frame)
            if self._stopped.is_set():
                return "stopped"
            if silent_s >= self._limit_s():
                return f"no frame for {self._limit_s():g} s"
        return "the stream ended"

    def _keep(self, frame: Frame) -> None:
        """Buffer a frame; drop the oldest one if the buffer is full."""
        # the first frame makes a connection an online one
        height, width, _ = frame.picture.shape
        self._report("online", f"{width} x {height} pixels")
        with self._changed:
            if len(self._frames) >= self._buffer:
                self._frames.popleft()
                self._counts.dropped += 1
            self._frames.append(frame)
            self._changed.notify_all()

    def _report(self, state: LinkState, reason: str) -> None:
        """Log a state change and call `on_state`; log further failed attempts at debug level."""
        if state == self._state:
            if state == "offline":
                logger.debug("camera %s: still offline: %s", self.name, reason)
            return
        self._state = state
        level = logging.INFO if state == "online" else logging.WARNING
        logger.log(level, "camera %s: %s: %s", self.name, state, reason)
        self._on_state(StateChange(state, reason))


@dataclass(slots=True)
class CameraCounts(DecodeStats):
    """Counters of a camera's stream."""

    dropped: int = 0
    """Frames that were decoded but pushed out of the buffer before they were read."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """A camera that went online or offline, and why."""

    state: LinkState
    reason: str


@dataclass(frozen=True, slots=True)
class Device:
    """An attached camera, by its file and FFmpeg's name of the input format.

    `size` (`1280x720`) and `rate` ask the camera for a mode; it may choose one nearby.
    """

    file: str
    size: str | None = None
    rate: str | None = None
    format: str = "v4l2"

    def __str__(self) -> str:
        return self.file

    def redact(self, text: str) -> str:
        """The text as it is: an attached camera has no credentials."""
        return text

    def options(self) -> dict[str, str]:
        """FFmpeg's options."""
        asked = {"video_size": self.size, "framerate": self.rate}
        return BOUNDED | {name: value for name, value in asked.items() if value is not None}

    def check_readable(self) -> None:
        """Raise if the device file is missing or may not be read; does not open it."""
        if self.format != "v4l2":
            return
        try:
            if not stat.S_ISCHR(Path(self.file).stat().st_mode):
                raise DataError(f"{self}: expected a camera, got another file", hint=_NO_CAMERA)
        except OSError as error:
            raise self._failed(error) from None
        if not os.access(self.file, os.R_OK | os.W_OK, effective_ids=True):
            raise self._failed(PermissionError(errno.EACCES, "no permission"))

    def open(self, timeout_s: tuple[float, float]) -> Any:
        """Open it with timeouts for opening and reading."""
        self.check_readable()
        try:
            return pyav().open(
                self.file, format=self.format, options=self.options(), timeout=timeout_s
            )
        except ValueError:
            raise DataError(
                f"{self}: expected a PyAV that reads {self.format}, got one without it",
                hint="install PyAV from PyPI, or build it with FFmpeg's devices",
            ) from None
        except decoding_errors() as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> DataError:
        number = getattr(error, "errno", None)
        got, hint = _REASONS.get(number or 0, (getattr(error, "strerror", None), _NO_CAMERA))
        return DataError(f"{self}: expected a camera, got {got or error}", hint=hint)


def device_of(address: str) -> Device:
    """The camera of an address such as `/dev/video0?size=1280x720&rate=15`, or `usb:0`."""
    match = _ADDRESS.fullmatch(address)
    options = {} if match is None else _device_options(address, match["options"] or "")
    file = "" if match is None else match["file"].removeprefix("usb:")
    if not file:
        raise DataError(
            f"{address}: expected a camera after usb:, got none", hint="write usb:0 or /dev/video0"
        )
    path = f"/dev/video{file}" if file.isdecimal() else file
    return Device(path, options.get("size"), options.get("rate"))


def is_device(address: str) -> bool:
    """Recognise an attached camera, not a network camera or a file."""
    return address.startswith(PREFIXES)


class _CapturedLog:
    """FFmpeg's log messages of this thread, forwarded to our logger without credentials."""

    def __init__(self, url: Url | Device) -> None:
        self._url = url
        self._logging = pyav().logging
        self._capture = self._logging.Capture()
        self._logs: list[tuple[int, str, str]] = []

    def __enter__(self) -> _CapturedLog:
        # FFmpeg would hold repeated messages back, then emit them from whichever thread logs next.
        self._logging.set_skip_repeated(False)
        self._logs = self._capture.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.forward()
        self._capture.__exit__(None, None, None)

    def forward(self) -> None:
        """Log the messages captured since the last call."""
        for level, name, message in self._logs:
            text = self._url.redact(message.strip())
            logger.log(self._logging.adapt_level(level), "FFmpeg %s: %s", name, text)
        self._logs.clear()


def _url_options(url: Url, timeout_s: float) -> dict[str, str]:
    """FFmpeg's options for low latency; with the defaults a camera takes 3 s to open."""
    microseconds = str(round(timeout_s * 1e6))
    options = {
        "fflags": "nobuffer",
        "flags": "low_delay",
        "analyzeduration": "200000",
        "probesize": "200000",
        "timeout": microseconds,
        **BOUNDED,
    }
    if url.scheme in PORTS:
        options |= url.tls.options()
    if url.scheme.startswith("rtsp"):
        options |= {"rtsp_transport": "tcp", "allowed_media_types": "video"}
        options["protocol_whitelist"] = "rtsp,rtsps,rtp,srtp,udp,tcp,tls"
    else:
        # the camera names no other address, neither by a redirect nor in a playlist
        options |= {"rw_timeout": microseconds, "max_redirects": "0"}
        options["format_whitelist"] = STREAM_FORMATS
        options["protocol_whitelist"] = f"{url.scheme},httpproxy,tcp,tls"
    return options


def _device_options(address: str, text: str) -> dict[str, str]:
    """The mode that an address asks for."""
    options = dict(parse_qsl(text, keep_blank_values=True))
    forms = {"size": _SIZE, "rate": _RATE}
    for name, value in options.items():
        if name not in forms or not forms[name].fullmatch(value):
            raise DataError(
                f"{address}: expected ?size=WIDTHxHEIGHT&rate=FRAMES_PER_SECOND, got "
                f"{name}={value}",
                hint="such as /dev/video0?size=1280x720&rate=15",
            )
    return options
