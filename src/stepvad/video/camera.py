"""Frames of a network camera, through every disconnection."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from stepvad.errors import ConfigError, DataError
from stepvad.supervision.backoff import Backoff
from stepvad.video.source import (
    BOUNDED,
    UNDECODED,
    Counts,
    Decoder,
    Frame,
    decoding_errors,
    pyav,
    video_stream,
)
from stepvad.video.tls import check_server, warn_if_insecure
from stepvad.video.url import Url

logger = logging.getLogger(__name__)

State = Literal["offline", "online"]

STALL_S = 4.0
"""Silence after which a stream counts as lost."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 3.0
"""Waits between attempts to connect; the longest leaves two seconds to connect within five."""

PATIENCE = (1, 2, 1, 4)
"""After each attempt in vain, how many times `STALL_S` the next one may take to the first frame.

Some cameras are slow to answer, or send a whole picture every ten seconds only.
"""

HINT = "check the path in its address"

BUFFER = 8
"""Frames kept for a slow reader; more than a third of a second at 20 frames a second is stale."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """A camera that came or went, when, and why."""

    camera: str
    state: State
    wall: float
    reason: str


@dataclass(slots=True)
class CameraCounts(Counts):
    """What became of a camera's stream.

    `dropped` frames were decoded but too old by the time somebody asked for them.
    """

    dropped: int = 0
    reconnects: int = 0
    stalls: int = 0
    offline_s: float = 0.0


def _ignore(change: StateChange) -> None:
    """Tell nobody."""


class Camera:
    """The frames of a camera (RTSP or HTTP), reopened whenever it goes away.

    Iterating connects; it ends after `stop`, which any thread may call, and never otherwise. A
    thread decodes and keeps the latest frames, so that a slow reader misses frames instead of
    falling behind. `on_state` is called from that thread. No message shows the credentials.
    """

    def __init__(
        self,
        name: str,
        url: Url | str,
        *,
        on_state: Callable[[StateChange], None] = _ignore,
        stall_s: float = STALL_S,
        buffer: int = BUFFER,
    ) -> None:
        pyav()
        self.name = name
        self.url = url if isinstance(url, Url) else Url(url)
        self._on_state = on_state
        self._stall_s = stall_s
        self._counts = CameraCounts()
        self._state: State | None = None
        self._was_online = False
        self._offline_since: float | None = None
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
    def state(self) -> State:
        """`online` from the first frame of a connection to its loss."""
        return self._state or "offline"

    @property
    def counts(self) -> CameraCounts:
        """The counts so far, the present time offline included."""
        with self._changed:
            return replace(self._counts, offline_s=self._counts.offline_s + self._offline_s())

    def stop(self) -> None:
        """End the iteration now; the connection closes as soon as its last read returns."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Frame]:
        self._start()
        try:
            while (frame := self._next()) is not None:
                yield frame
        finally:
            self.stop()

    def _start(self) -> None:
        """Start to decode, once."""
        if self._thread is not None:
            raise DataError(
                f"camera {self.name}: expected one iteration, got a second",
                hint="make another Camera",
            )
        warn_if_insecure(self.name, self.url.reveal(), self.url.tls)
        self._offline_since = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"camera-{self.name}", daemon=True)
        self._thread.start()

    def _next(self) -> Frame | None:
        """The oldest frame kept, waiting for it; nothing after the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._frames or self._stopped.is_set())
            if self._failure is not None:
                raise self._failure
            return None if self._stopped.is_set() else self._frames.popleft()

    def _run(self) -> None:
        """Connect again and again, until stopped."""
        try:
            with _CapturedLog(self.url) as log:
                self._connect_until_stopped(log)
        except Exception as error:  # a failing callback ends the iteration, not only this thread
            self._failure = error
        finally:
            with self._changed:
                self._counts.offline_s += self._offline_s()
                self._offline_since = None
            self.stop()

    def _connect_until_stopped(self, log: _CapturedLog) -> None:
        backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
        while not self._stopped.is_set():
            decoded = self._counts.decoded
            reason = self._explained(self._session(log))
            if self._stopped.is_set():
                reason = "stopped"
            self._report("offline", reason)
            if self._counts.decoded > decoded:
                self._in_vain = 0
                backoff.reset()
            else:
                self._in_vain += 1
            backoff.wait(self._stopped)

    def _session(self, log: _CapturedLog) -> str:
        """One connection from beginning to end; the reason why it ended."""
        self._epoch += 1
        self._skipped_before = self._counts.skipped
        try:
            with self._opened() as container:
                return self._read(container, log)
        except (ConfigError, DataError) as error:
            return self.url.redact(str(error))
        except decoding_errors() as error:
            timed_out = isinstance(error, TimeoutError | pyav().error.ExitError)
            self._counts.stalls += timed_out and self._state == "online"
            if timed_out:
                return f"no answer for {self._limit_s():g} s"
            return self.url.redact(getattr(error, "strerror", None) or str(error))
        finally:
            log.forward()

    def _explained(self, reason: str) -> str:
        """Why a connection ended, and what came since its last frame."""
        undecoded = self._counts.skipped - self._skipped_before
        return f"{reason}: {undecoded} did not decode, {UNDECODED}" if undecoded else reason

    def _opened(self) -> Any:
        """The connection, to a server that may have the password; silence ends it."""
        limit, first = max(self._stall_s, 0.1), max(self._limit_s(), 0.1)
        check_server(pyav(), self.url.reveal(), self.url.tls, first)
        options = _options(self.url, first)
        return pyav().open(self.url.reveal(), options=options, timeout=(first, limit))

    def _limit_s(self) -> float:
        """How long the next frame of a connection may take; the first one at times longer."""
        if self._state == "online":
            return self._stall_s
        return self._stall_s * PATIENCE[self._in_vain % len(PATIENCE)]

    def _read(self, container: Any, log: _CapturedLog) -> str:
        """Decode until the stream ends, falls silent or is stopped."""
        stream = video_stream(container, f"camera {self.name}", hint=HINT)
        stream.thread_type = "SLICE"  # threads by frame would hold frames back
        decoder = Decoder(self._counts)
        latest = time.monotonic()
        for packet in container.demux():
            log.forward()
            # Before decoding: FFmpeg hands its last packet out when it has given up waiting.
            silent_s = time.monotonic() - latest
            if packet.stream.index == stream.index:
                for pts, image in decoder.pictures(packet):
                    latest, self._skipped_before = time.monotonic(), self._counts.skipped
                    number = self._counts.decoded - 1
                    self._keep(Frame(self.name, number, pts, time.time(), image, self._epoch))
            if self._stopped.is_set():
                return "stopped"
            if silent_s >= self._limit_s():
                self._counts.stalls += 1
                return f"no frame for {self._limit_s():g} s"
        return "the stream ended"

    def _keep(self, frame: Frame) -> None:
        """Hand a frame over, in place of the oldest if nobody takes them."""
        self._report("online", f"{frame.image.shape[1]} x {frame.image.shape[0]} pixels")
        with self._changed:
            if len(self._frames) >= self._buffer:
                self._frames.popleft()
                self._counts.dropped += 1
            self._frames.append(frame)
            self._changed.notify_all()

    def _report(self, state: State, reason: str) -> None:
        """Log and tell a change of state; another failed attempt to connect is for debugging."""
        if state == self._state:
            if state == "offline":
                logger.debug("camera %s: still offline: %s", self.name, reason)
            return
        with self._changed:
            self._settle(online=state == "online")
            self._state = state
        level = logging.INFO if state == "online" else logging.WARNING
        logger.log(level, "camera %s: %s: %s", self.name, state, reason)
        self._on_state(StateChange(self.name, state, time.time(), reason))

    def _settle(self, *, online: bool) -> None:
        """Add up the time offline, and count a connection that came back."""
        self._counts.offline_s += self._offline_s()
        self._offline_since = None if online else time.monotonic()
        self._counts.reconnects += online and self._was_online
        self._was_online |= online

    def _offline_s(self) -> float:
        """How long the camera has been away by now."""
        return 0.0 if self._offline_since is None else time.monotonic() - self._offline_since


class _CapturedLog:
    """What FFmpeg logs in this thread, passed on without credentials."""

    def __init__(self, url: Url) -> None:
        self._url = url
        self._logging = pyav().logging
        self._capture = self._logging.Capture()
        self._logs: list[tuple[int, str, str]] = []

    def __enter__(self) -> _CapturedLog:
        # A repeated message would be passed on later, and by any thread that logs the next one.
        self._logging.set_skip_repeated(False)
        self._logs = self._capture.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.forward()
        self._capture.__exit__(None, None, None)

    def forward(self) -> None:
        """Log what has come since the last time."""
        for level, name, message in self._logs:
            text = self._url.redact(message.strip())
            logger.log(self._logging.adapt_level(level), "FFmpeg %s: %s", name, text)
        self._logs.clear()


def _options(url: Url, timeout_s: float) -> dict[str, str]:
    """FFmpeg's options for little delay; with the default ones a camera takes 3 s to open."""
    microseconds = str(round(timeout_s * 1e6))
    options = {
        "fflags": "nobuffer",
        "flags": "low_delay",
        "analyzeduration": "200000",
        "probesize": "200000",
        "timeout": microseconds,
        **BOUNDED,
    }
    if url.scheme != "rtsp":  # http:// may lead on to https://
        options |= url.tls.options()
    if url.scheme.startswith("rtsp"):
        options |= {"rtsp_transport": "tcp", "allowed_media_types": "video"}
        options["protocol_whitelist"] = "rtsp,rtsps,rtp,srtp,udp,tcp,tls"
    else:
        options |= {"rw_timeout": microseconds}
        options["protocol_whitelist"] = "http,https,httpproxy,tcp,tls,crypto,data"
    return options
