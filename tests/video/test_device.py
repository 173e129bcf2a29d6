from __future__ import annotations

import errno
import os
import stat
import threading
from itertools import islice
from pathlib import Path

import pytest

from stepvad.errors import DataError
from stepvad.video.camera import Camera, StateChange
from stepvad.video.device import Device, device_of, is_device
from stepvad.video.source import BOUNDED
from tests.video.servers import wait_until

av = pytest.importorskip("av")


@pytest.mark.parametrize(
    ("address", "platform", "device"),
    [
        ("/dev/video0", "linux", Device("v4l2", "/dev/video0")),
        ("usb:2", "linux", Device("v4l2", "/dev/video2")),
        ("/dev/v4l/by-id/usb-A_B-index0", "linux", Device("v4l2", "/dev/v4l/by-id/usb-A_B-index0")),
        (
            "/dev/video1?size=1280x720&rate=15",
            "linux",
            Device("v4l2", "/dev/video1", "1280x720", "15"),
        ),
        ("usb:0", "darwin", Device("avfoundation", "0", None, "30")),
        ("usb:0?rate=15", "darwin", Device("avfoundation", "0", None, "15")),
        ("usb:HD Webcam", "win32", Device("dshow", "video=HD Webcam")),
    ],
)
def test_an_address_names_a_device_of_the_platform(
    address: str, platform: str, device: Device
) -> None:
    assert is_device(address)
    assert device_of(address, platform) == device


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
        device_of(address, "linux")


def test_the_mode_is_handed_to_ffmpeg() -> None:
    device = device_of("/dev/video0?size=640x480&rate=7.5", "linux")
    assert device.options() == BOUNDED | {"video_size": "640x480", "framerate": "7.5"}
    assert device_of("/dev/video0", "linux").options() == BOUNDED


def test_a_missing_device_says_so() -> None:
    with pytest.raises(DataError, match="/dev/video99: expected a camera, got no such device") as e:
        device_of("/dev/video99", "linux").probe()
    assert "plug the camera in" in e.value.hint


def test_a_file_in_place_of_a_device_says_so(tmp_path: Path) -> None:
    (tmp_path / "video0").write_bytes(b"")
    with pytest.raises(DataError, match="expected a camera, got another file"):
        Device("v4l2", str(tmp_path / "video0")).probe()


def test_a_device_that_is_no_camera_says_so() -> None:
    with pytest.raises(DataError, match="expected a camera, got Inappropriate ioctl") as error:
        Device("v4l2", "/dev/null").probe()
    assert "v4l2-ctl" in error.value.hint


def test_a_device_without_permission_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real device file, opened by somebody who may not."""
    file = tmp_path / "video0"
    try:
        os.mknod(file, stat.S_IFCHR | 0o000, os.makedev(81, 0))
    except PermissionError:
        pytest.skip("only root makes device files")
    monkeypatch.chdir(tmp_path)
    os.seteuid(65534)
    try:
        with pytest.raises(DataError, match="expected a camera, got no permission") as error:
            Device("v4l2", "video0").probe()
    finally:
        os.seteuid(0)
    assert "usermod" in error.value.hint


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
        Device("v4l2", "/dev/null").probe()


def test_a_pyav_without_the_format_says_so() -> None:
    with pytest.raises(DataError, match="expected a PyAV that reads nosuch"):
        Device("nosuch", "0").probe()


def test_a_camera_reads_a_device_in_its_mode() -> None:
    """FFmpeg's virtual device in place of one of the kernel's."""
    camera = Camera("desk", Device("lavfi", "testsrc=size=320x240:rate=20,realtime"))
    frames = list(islice(camera, 5))
    assert {frame.image.shape for frame in frames} == {(240, 320, 3)}
    assert [frame.number for frame in frames] == list(range(5))
    assert len({frame.pts for frame in frames}) == 5
    assert {(frame.camera, frame.epoch) for frame in frames} == {("desk", 0)}


def test_a_device_that_ends_is_opened_again() -> None:
    changes: list[StateChange] = []
    device = Device("lavfi", "testsrc=size=64x48:rate=50:duration=0.2")
    camera = Camera("desk", device, on_state=changes.append, buffer=100)
    frames = list(islice(camera, 15))
    assert [frame.epoch for frame in frames] == [0] * 10 + [1] * 5
    assert [change.state for change in changes[:3]] == ["online", "offline", "online"]


def test_a_device_that_is_not_there_is_offline_with_the_reason() -> None:
    changes: list[StateChange] = []
    camera = Camera("desk", device_of("/dev/video99", "linux"), on_state=changes.append)
    reader = threading.Thread(target=list, args=(camera,))
    reader.start()
    wait_until(lambda: len(changes) > 0)
    camera.stop()
    reader.join(2)
    assert not reader.is_alive()
    assert changes[0].state == "offline"
    assert "/dev/video99: expected a camera, got no such device" in changes[0].reason
