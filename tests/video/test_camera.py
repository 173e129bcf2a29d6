from __future__ import annotations

import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from stepvad.errors import DataError
from stepvad.video.camera import Camera, StateChange, _CapturedLog
from stepvad.video.source import Frame, video_stream
from stepvad.video.url import Url
from tests.video.clips import N_FRAMES, write_video
from tests.video.servers import (
    CANARY,
    SLOWER,
    RtspServer,
    has_rtsp_server,
    shows_nothing,
    silent_server,
    wait_until,
    web_server,
)

av = pytest.importorskip("av")


@pytest.fixture
def everything_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.LogCaptureFixture]:
    """All logs of all loggers, FFmpeg's included: a line for each byte of an answer.

    To log, FFmpeg's threads wait for the GIL: nothing that is timed is logged like this, and
    nothing is decoded by threads, which PyAV may join while it holds the GIL, for ever.
    """

    def without_threads(*args: Any, **named: Any) -> Any:
        stream = video_stream(*args, **named)
        stream.codec_context.thread_count = 1
        return stream

    monkeypatch.setattr("stepvad.video.camera.video_stream", without_threads)
    caplog.set_level(1)
    caplog.set_level(1, logger="stepvad")
    caplog.set_level(1, logger="libav")
    level = av.logging.get_level()
    av.logging.set_level(av.logging.TRACE)
    yield caplog
    av.logging.set_level(level)


def test_a_stream_that_ends_is_opened_again_as_another_epoch(
    tmp_path: Path, everything_logged: pytest.LogCaptureFixture
) -> None:
    clip = write_video(tmp_path / "a.ts", codec="mpeg2video").read_bytes()
    changes: list[StateChange] = []
    with web_server(clip) as address:
        camera = Camera("door", address, on_state=changes.append, buffer=1000)
        frames = list(islice(camera, N_FRAMES + 10))
    assert [frame.number for frame in frames] == list(range(N_FRAMES + 10))
    epochs = [frame.epoch for frame in frames]
    assert epochs == sorted(epochs)
    assert {0, 1} <= set(epochs)
    assert [change.state for change in changes[:3]] == ["online", "offline", "online"]
    assert changes[1].reason
    counts = camera.counts
    assert counts.reconnects >= 1
    assert counts.stalls == 0
    assert counts.offline_s > 0.25
    assert shows_nothing(camera, counts, *changes, *everything_logged.records)
    assert shows_nothing(everything_logged.text)


def test_a_slow_reader_misses_frames_instead_of_falling_behind(tmp_path: Path) -> None:
    clip = write_video(tmp_path / "a.ts", codec="mpeg2video").read_bytes()
    with web_server(clip) as address:
        camera = Camera("door", address, buffer=4)
        frames = iter(camera)
        first = next(frames)
        wait_until(lambda: camera.counts.decoded >= N_FRAMES)
        second = next(frames)
        camera.stop()
        assert next(frames, None) is None
    assert second.number >= N_FRAMES - 4
    assert camera.counts.dropped >= second.number - first.number - 4 > 0


@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_refusal_is_reported_without_credentials(
    everything_logged: pytest.LogCaptureFixture, status: int
) -> None:
    changes: list[StateChange] = []
    with web_server(b"no", status=status) as address:
        camera = Camera("door", address, on_state=changes.append)
        reader = start(camera)
        wait_until(lambda: len(changes) > 0)
        camera.stop()
        reader.join(1)
    assert not reader.is_alive()
    assert changes[0].state == "offline"
    assert shows_nothing(camera, everything_logged.text, *changes)


def test_what_a_camera_sends_may_be_no_video(everything_logged: pytest.LogCaptureFixture) -> None:
    changes: list[StateChange] = []
    with web_server(b"canary" * 1000) as address:
        camera = Camera("door", address, on_state=changes.append)
        start(camera)
        wait_until(lambda: len(changes) > 0)
        camera.stop()
    assert camera.counts.decoded == 0
    assert shows_nothing(camera, everything_logged.text, *changes)


def test_a_silent_server_is_noticed_and_tried_again(
    everything_logged: pytest.LogCaptureFixture,
) -> None:
    changes: list[StateChange] = []
    with silent_server() as address:
        camera = Camera("door", address, on_state=changes.append, stall_s=0.4)
        started = time.monotonic()
        start(camera)
        wait_until(lambda: len(changes) > 0)
        assert time.monotonic() - started < 5
        wait_until(lambda: "still offline" in everything_logged.text)
        camera.stop()
    assert [change.state for change in changes] == ["offline"]
    assert camera.counts.offline_s > 0.4
    assert shows_nothing(camera, everything_logged.text, *changes)


def test_stop_ends_a_reader_that_waits() -> None:
    with silent_server() as address:
        camera = Camera("door", address)
        reader = start(camera)
        time.sleep(0.2)
        started = time.monotonic()
        camera.stop()
        reader.join(5)
        assert time.monotonic() - started < 1
        assert not reader.is_alive()


def test_a_callback_that_fails_ends_the_iteration() -> None:
    def fail(change: StateChange) -> None:
        raise LookupError(change.state)

    address = f"rtsp://viewer:{CANARY}@127.0.0.1:9/a"
    camera = Camera("door", address, on_state=fail)
    with pytest.raises(LookupError, match="offline") as caught:
        next(iter(camera))
    chain = traceback.format_exception(caught.value)
    assert shows_nothing("".join(chain))


def test_a_camera_is_read_once() -> None:
    camera = Camera("door", Url("rtsp://127.0.0.1:9/a"))
    start(camera)
    wait_until(lambda: camera.counts.offline_s > 0)
    with pytest.raises(DataError, match="one iteration"):
        next(iter(camera))
    camera.stop()


def start(camera: Camera, frames: list[Frame] | None = None) -> threading.Thread:
    """Read a camera in another thread."""
    kept = [] if frames is None else frames

    def read() -> None:
        for frame in camera:
            kept.append(frame)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    return reader


@pytest.fixture
def rtsp(tmp_path: Path) -> Iterator[RtspServer]:
    if not has_rtsp_server():
        pytest.skip("GStreamer's RTSP server is not installed")
    clip = write_video(tmp_path / "a.mkv", codec="libx264")
    server = RtspServer(clip, tmp_path / "server.log")
    server.start()
    yield server
    server.kill()


@pytest.mark.slow
def test_nothing_that_is_logged_of_a_session_shows_the_password(
    rtsp: RtspServer, everything_logged: pytest.LogCaptureFixture
) -> None:
    frames: list[Frame] = []
    camera = Camera("door", rtsp.address)
    reader = start(camera, frames)
    wait_until(lambda: len(frames) >= 10)
    camera.stop()
    reader.join(5 * SLOWER)
    assert not reader.is_alive()
    assert "DESCRIBE" in everything_logged.text
    assert shows_nothing(camera, everything_logged.text, *frames[:1])


@pytest.mark.slow
def test_a_camera_that_dies_is_noticed_and_comes_back(
    rtsp: RtspServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    changes: list[StateChange] = []
    frames: list[Frame] = []
    camera = Camera("door", rtsp.address, on_state=changes.append)
    reader = start(camera, frames)
    wait_until(lambda: len(frames) >= 40)
    assert {frame.epoch for frame in frames} == {0}
    assert all(frame.pts is not None for frame in frames)

    rtsp.kill()
    noticed_s = wait_until(lambda: camera.state == "offline")
    assert noticed_s <= 5 * SLOWER
    time.sleep(max(10 - noticed_s, 0))
    before = len(frames)
    rtsp.start()
    resumed_s = wait_until(lambda: len(frames) > before)
    assert resumed_s <= 5 * SLOWER
    sys.stderr.write(f"noticed after {noticed_s:.2f} s, resumed after {resumed_s:.2f} s\n")

    wait_until(lambda: len(frames) >= before + 20)
    camera.stop()
    reader.join(5 * SLOWER)
    assert not reader.is_alive()
    check_comeback(camera, frames, changes)
    assert shows_nothing(camera, caplog.text, *changes, *frames[:1])


def check_comeback(camera: Camera, frames: list[Frame], changes: list[StateChange]) -> None:
    counts = camera.counts
    assert [change.state for change in changes[:3]] == ["online", "offline", "online"]
    assert (counts.reconnects, counts.stalls) == (1, 0)
    assert 9 <= counts.offline_s <= 20 * SLOWER
    assert counts.decoded >= len(frames)
    numbers = [frame.number for frame in frames]
    assert numbers == sorted(set(numbers))
    epochs = [frame.epoch for frame in frames]
    assert epochs == sorted(epochs)
    assert len(set(epochs)) == 2


@pytest.mark.slow
def test_a_camera_that_freezes_is_noticed_and_counted(
    rtsp: RtspServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    frames: list[Frame] = []
    camera = Camera("door", rtsp.address)
    start(camera, frames)
    wait_until(lambda: len(frames) >= 10)
    rtsp.process.send_signal(signal.SIGSTOP)
    noticed_s = wait_until(lambda: camera.state == "offline")
    assert noticed_s <= 5 * SLOWER
    rtsp.process.send_signal(signal.SIGCONT)
    before = len(frames)
    resumed_s = wait_until(lambda: len(frames) > before)
    camera.stop()
    assert resumed_s <= 5 * SLOWER
    sys.stderr.write(f"noticed after {noticed_s:.2f} s, resumed after {resumed_s:.2f} s\n")
    assert camera.counts.stalls == 1
    assert shows_nothing(camera, caplog.text)


@pytest.mark.slow
def test_a_wrong_password_is_reported_and_hidden(
    rtsp: RtspServer, everything_logged: pytest.LogCaptureFixture
) -> None:
    changes: list[StateChange] = []
    wrong = rtsp.address.replace(CANARY, f"{CANARY}-wrong")
    camera = Camera("door", wrong, on_state=changes.append)
    start(camera)
    wait_until(lambda: len(changes) > 0)
    camera.stop()
    assert re.search("401|nauthorized", changes[0].reason)
    assert shows_nothing(camera, everything_logged.text, *changes)


def test_a_camera_that_is_slow_to_answer_gets_more_time_now_and_then() -> None:
    limits = []
    with silent_server() as address:
        camera = Camera("door", address, stall_s=0.1)
        for camera._in_vain in range(5):
            limits.append(camera._limit_s())
        camera._in_vain = 3
        started = time.monotonic()
        assert camera._session(_CapturedLog(camera.url))
        assert time.monotonic() - started >= 0.39
    assert limits == pytest.approx([0.1, 0.2, 0.1, 0.4, 0.1])
    camera._state = "online"
    assert camera._limit_s() == 0.1
