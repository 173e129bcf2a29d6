"""Pictures too large to be true take no memory."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from stepvad.video.camera import Camera, StateChange
from tests.video.clips import grey_jpeg
from tests.video.servers import web_server

av = pytest.importorskip("av")

SIDE = 16_000
SMALL = 20

READ = """
import resource, sys
from stepvad.errors import DataError
from stepvad.video.source import open_video
limit = 2_000_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    video = open_video(sys.argv[1])
    print(len(list(video)), video.counts.skipped)
except DataError as error:
    print(error)
# Not ru_maxrss, which begins with that of the parent.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) // 1024)
"""


@pytest.fixture(scope="module")
def pictures() -> tuple[bytes, bytes]:
    return grey_jpeg(64, 48), grey_jpeg(SIDE, SIDE)


def read(path: Path) -> tuple[str, int]:
    """What a process of little memory says of a video, and how many megabytes it took."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    words, megabytes = done.stdout.strip().splitlines()
    return words, int(megabytes)


def test_a_small_mjpeg_is_read(tmp_path: Path, pictures: tuple[bytes, bytes]) -> None:
    path = tmp_path / "small.mjpeg"
    path.write_bytes(pictures[0] * SMALL)
    assert read(path)[0] == f"{SMALL} 0"


@pytest.mark.parametrize("said", [(SIDE, SIDE), (64, 48)])
def test_a_huge_mjpeg_is_refused_in_little_memory(
    tmp_path: Path, pictures: tuple[bytes, bytes], said: tuple[int, int]
) -> None:
    path = tmp_path / "huge.avi"
    write_avi(path, pictures[1], said)
    words, megabytes = read(path)
    assert "expected at least one frame, got none and 2 errors" in words
    assert "larger than 35 megapixels" in words
    assert "8K at most" in words
    assert megabytes < 200


def test_pictures_that_become_huge_midway_are_skipped(
    tmp_path: Path, pictures: tuple[bytes, bytes]
) -> None:
    small, huge = pictures
    path = tmp_path / "both.mjpeg"
    path.write_bytes(small * SMALL + huge + small * SMALL)
    words, megabytes = read(path)
    assert words == f"{2 * SMALL} 1"
    assert megabytes < 200


def test_a_camera_that_sends_huge_pictures_says_why_it_is_offline(
    pictures: tuple[bytes, bytes],
) -> None:
    small, huge = pictures
    changes: list[StateChange] = []
    with web_server(small * SMALL + huge * 10) as address:
        camera = Camera("door", address, on_state=changes.append)
        for frame in camera:
            assert frame.image.shape == (48, 64, 3)
            if "online" in [change.state for change in changes[:-2]]:
                break  # it was there, went away, and is back
    assert camera.counts.skipped > 0
    lost = next(change for change in changes if "did not decode" in change.reason)
    assert lost.state == "offline"
    assert "larger than 35 megapixels" in lost.reason


def write_avi(path: Path, picture: bytes, said: tuple[int, int]) -> None:
    """Two pictures in a container that says a size of its own."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=10)
        stream.width, stream.height, stream.pix_fmt = *said, "yuvj420p"
        for number in range(2):
            packet = av.Packet(picture)
            packet.stream, packet.pts, packet.dts = stream, number, number
            packet.time_base = Fraction(1, 10)
            container.mux(packet)
