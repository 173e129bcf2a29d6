from __future__ import annotations

import errno
import os
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
from stepvad.video.camera import Camera, Device, StateChange, _CapturedLog, device_of, is_device
from stepvad.video.source import BOUNDED, Frame, video_stream
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
    assert shows_nothing(camera, *changes, *everything_logged.records)
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
        assert time.monotonic() - started < 2 * SLOWER
        wait_until(lambda: "still offline" in everything_logged.text)
        camera.stop()
    assert [change.state for change in changes] == ["offline"]
    assert shows_nothing(camera, everything_logged.text, *changes)


def test_stop_ends_a_reader_that_waits() -> None:
    with silent_server() as address:
        camera = Camera("door", address)
        reader = start(camera)
        time.sleep(0.2)
        started = time.monotonic()
        camera.stop()
        reader.join(2 * SLOWER)
        assert time.monotonic() - started < 1 * SLOWER
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
    wait_until(lambda: camera._thread is not None)
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
    assert [change.state for change in changes[:3]] == ["online", "offline", "online"]
    assert "online" not in [change.state for change in changes[3:]]
    assert camera.counts.decoded >= len(frames)
    numbers = [frame.number for frame in frames]
    assert numbers == sorted(set(numbers))
    epochs = [frame.epoch for frame in frames]
    assert epochs == sorted(epochs)
    assert len(set(epochs)) == 2


@pytest.mark.slow
def test_a_camera_that_freezes_is_noticed(
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
    assert "camera door: offline: no " in caplog.text
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


@pytest.mark.parametrize(
    ("address", "device"),
    [
        ("/dev/video0", Device("/dev/video0")),
        ("usb:2", Device("/dev/video2")),
        ("/dev/v4l/by-id/usb-A_B-index0", Device("/dev/v4l/by-id/usb-A_B-index0")),
        (
            "/dev/video1?size=1280x720&rate=15",
            Device("/dev/video1", "1280x720", "15"),
        ),
    ],
)
def test_an_address_names_a_device(address: str, device: Device) -> None:
    assert is_device(address)
    assert device_of(address) == device


@pytest.mark.parametrize("address", ["/dev/shm/a.mp4", "video0", "rtsp://h/dev/video0", "demo:"])
def test_files_and_network_cameras_are_no_devices(address: str) -> None:
    assert not is_device(address)


@pytest.mark.parametrize(
    ("address", "got"),
    [
        ("usb:", "expected a camera after usb:"),
        ("/dev/video0?size=big", "got size=big"),
        ("/dev/video0?size=640x480;rm", "got size=640x480;rm"),
        ("/dev/video0?rate=0", "got rate=0"),
        ("/dev/video0?rate=", "got rate="),
        ("/dev/video0?list_formats=all", "got list_formats=all"),
    ],
)
def test_a_wrong_mode_is_refused(address: str, got: str) -> None:
    with pytest.raises(DataError, match=got):
        device_of(address)


def test_the_mode_is_handed_to_ffmpeg() -> None:
    device = device_of("/dev/video0?size=640x480&rate=7.5")
    assert device.options() == BOUNDED | {"video_size": "640x480", "framerate": "7.5"}
    assert device_of("/dev/video0").options() == BOUNDED


def test_a_missing_device_says_so() -> None:
    with pytest.raises(DataError, match="/dev/video99: expected a camera, got no such device") as e:
        device_of("/dev/video99").open((9.0, 9.0))
    assert "plug the camera in" in e.value.hint


def test_a_file_in_place_of_a_device_says_so(tmp_path: Path) -> None:
    (tmp_path / "video0").write_bytes(b"")
    with pytest.raises(DataError, match="expected a camera, got another file"):
        Device(str(tmp_path / "video0")).open((9.0, 9.0))


def test_a_device_that_is_no_camera_says_so() -> None:
    with pytest.raises(DataError, match="expected a camera, got Inappropriate ioctl") as error:
        Device("/dev/null").open((9.0, 9.0))
    assert "v4l2-ctl" in error.value.hint


@pytest.mark.parametrize(
    ("number", "got"),
    [
        (errno.EBUSY, "a device that another program uses"),
        (errno.EACCES, "no permission"),
        (errno.ENODEV, "no such device"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_errors_of_the_driver_are_explained(
    number: int, got: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No driver is at hand that fails like this."""

    def fails(*_: object, **__: object) -> None:
        raise av.error.FFmpegError(number, os.strerror(number))

    monkeypatch.setattr(av, "open", fails)
    with pytest.raises(DataError, match=f"expected a camera, got {got}"):
        Device("/dev/null").open((9.0, 9.0))


def test_a_pyav_without_the_format_says_so() -> None:
    with pytest.raises(DataError, match="expected a PyAV that reads nosuch"):
        Device("0", format="nosuch").open((9.0, 9.0))


def test_a_camera_reads_a_device_in_its_mode() -> None:
    """FFmpeg's virtual device in place of one of the kernel's."""
    camera = Camera("desk", Device("testsrc=size=320x240:rate=20,realtime", format="lavfi"))
    frames = list(islice(camera, 5))
    assert {frame.image.shape for frame in frames} == {(240, 320, 3)}
    assert [frame.number for frame in frames] == list(range(5))
    assert len({frame.pts for frame in frames}) == 5
    assert {(frame.camera, frame.epoch) for frame in frames} == {("desk", 0)}


def test_a_device_that_ends_is_opened_again() -> None:
    changes: list[StateChange] = []
    device = Device("testsrc=size=64x48:rate=50:duration=0.2", format="lavfi")
    camera = Camera("desk", device, on_state=changes.append, buffer=100)
    frames = list(islice(camera, 15))
    assert [frame.epoch for frame in frames] == [0] * 10 + [1] * 5
    assert [change.state for change in changes[:3]] == ["online", "offline", "online"]


def test_a_device_that_is_not_there_is_offline_with_the_reason() -> None:
    changes: list[StateChange] = []
    camera = Camera("desk", device_of("/dev/video99"), on_state=changes.append)
    reader = threading.Thread(target=list, args=(camera,))
    reader.start()
    wait_until(lambda: len(changes) > 0)
    camera.stop()
    reader.join(2)
    assert not reader.is_alive()
    assert changes[0].state == "offline"
    assert "/dev/video99: expected a camera, got no such device" in changes[0].reason
