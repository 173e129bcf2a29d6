from __future__ import annotations

import builtins
import logging
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.errors import DataError, MissingExtraError, Progress
from stepvad.video.camera import Camera, StateChange
from stepvad.video.extract import ExtractionOptions, Parts, extract_file
from stepvad.video.source import (
    Frame,
    Picture,
    PictureFolder,
    VideoFile,
    at_rate,
    footage_digest,
    open_footage,
)
from tests.video.clips import (
    N_FRAMES,
    STEP,
    broken,
    grey_jpeg,
    unusable_files,
    write_images,
    write_pictures,
    write_video,
)
from tests.video.servers import web_server
from tests.video.test_following import Scene, standing

av = pytest.importorskip("av")


def brightness(frames: list[Frame]) -> list[float]:
    return [float(frame.image[:, :16].mean()) for frame in frames]


@pytest.mark.parametrize(
    ("codec", "name"), [("mpeg4", "a.mp4"), ("libx264", "a.mkv"), ("mpeg4", "a.avi")]
)
def test_every_frame_comes_in_order_with_its_time(tmp_path: Path, codec: str, name: str) -> None:
    video = VideoFile(write_video(tmp_path / name, codec=codec))
    frames = list(video)
    assert [frame.number for frame in frames] == list(range(N_FRAMES))
    assert np.allclose(brightness(frames), np.arange(N_FRAMES) * STEP, atol=4)
    assert np.allclose(np.diff([frame.pts or 0.0 for frame in frames]), 0.1, atol=1e-3)
    assert {frame.image.shape for frame in frames} == {(48, 64, 3)}
    assert {frame.image.dtype for frame in frames} == {np.dtype(np.uint8)}
    assert {(frame.camera, frame.epoch) for frame in frames} == {("a", 0)}
    assert video.fps == pytest.approx(10)
    assert video.n_frames in (N_FRAMES, None)
    assert (video.counts.decoded, video.counts.skipped) == (N_FRAMES, 0)


def test_a_second_pass_is_another_epoch(tmp_path: Path) -> None:
    video = VideoFile(write_video(tmp_path / "a.mp4"), camera="door")
    next(iter(video))
    again = list(video)
    assert [frame.number for frame in again] == list(range(N_FRAMES))
    assert {(frame.camera, frame.epoch) for frame in again} == {("door", 1)}
    assert video.counts.decoded == N_FRAMES
    assert "a.mp4" in repr(video)


def test_colours_are_red_green_blue(tmp_path: Path) -> None:
    path = tmp_path / "red.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "bgr0"
        image = np.zeros((32, 32, 3), np.uint8)
        image[..., 0] = 200
        container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    (frame,) = VideoFile(path)
    assert frame.image[16, 16].tolist() == [200, 0, 0]
    assert frame.picture.luma().shape == (32, 32)
    assert 40 < frame.picture.luma()[16, 16] < 80


def test_brightness_is_read_where_the_decoder_wrote_it(tmp_path: Path) -> None:
    for frame in VideoFile(write_video(tmp_path / "a.mkv", codec="libx264")):
        luma = frame.picture.luma()
        assert not luma.flags.owndata
        assert np.abs(luma.mean() - (16 + frame.image.mean() * 219 / 255)) < 3


@pytest.mark.parametrize("degrees", [90, 180, -90])
def test_a_video_on_its_side_is_turned_upright(tmp_path: Path, degrees: int) -> None:
    path = tmp_path / "turned.mp4"
    image = np.zeros((48, 64, 3), np.uint8)
    image[:16, :16] = 255
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        if not hasattr(stream, "set_display_rotation"):
            pytest.skip("this PyAV cannot write a rotation")
        stream.set_display_rotation(degrees)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    (frame,) = VideoFile(path)
    upright = np.rot90(image, degrees // 90)
    assert frame.image.shape == frame.picture.shape == upright.shape
    assert np.abs(frame.picture.luma().astype(int) - upright[..., 0]).mean() < 20
    assert np.abs(frame.image.astype(int) - upright).mean() < 8


@pytest.mark.parametrize("how", ["cut", "noise", "flips"])
@pytest.mark.parametrize(
    ("codec", "suffix"), [("libx264", ".mkv"), ("mpeg4", ".avi"), ("libx264", ".ts")]
)
def test_damage_in_the_middle_is_skipped_or_ends_the_video(
    tmp_path: Path, how: str, codec: str, suffix: str
) -> None:
    whole = write_video(tmp_path / f"whole{suffix}", codec=codec)
    video = VideoFile(broken(whole, how, tmp_path))
    frames = list(video)
    assert 1 <= len(frames) <= N_FRAMES
    assert video.counts.decoded == len(frames)
    assert [frame.number for frame in frames] == list(range(len(frames)))


@pytest.fixture
def unusable(tmp_path: Path) -> dict[str, Path]:
    return unusable_files(tmp_path)


@pytest.mark.parametrize(
    ("kind", "got"),
    [
        ("cut", "got: "),
        ("image", "a still image"),
        ("sound", "got audio"),
        ("empty", "an empty file"),
        ("text", "got: "),
        ("playlist", "a playlist"),
        ("too long", "too long"),
        ("pipe", "a device"),
        ("directory", "a directory"),
        ("missing", "no file"),
    ],
)
def test_what_is_no_video_is_an_error_that_says_so(
    unusable: dict[str, Path], kind: str, got: str
) -> None:
    with pytest.raises(DataError, match=got) as caught:
        list(VideoFile(unusable[kind]))
    assert str(unusable[kind]) in caught.value.problem
    assert "expected" in caught.value.problem
    assert caught.value.hint


def test_a_video_without_frames_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "none.mkv"
    whole = write_video(tmp_path / "whole.mkv", codec="libx264")
    data = whole.read_bytes()
    path.write_bytes(data[: data.index(b"\x1f\x43\xb6\x75")])  # up to the first cluster
    with pytest.raises(DataError, match="expected"):
        list(VideoFile(path))


def test_without_pyav_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_video(tmp_path / "a.mp4")
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.split(".")[0] == "av":
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"stepvad\[video\]"):
        VideoFile(path)


pytest.importorskip("av")
pytest.importorskip("cv2")

SHADES = np.arange(12, dtype=np.uint8)[:, None, None, None] * 20
PICTURES = np.broadcast_to(SHADES, (12, 16, 32, 3)).copy()
PICTURES[..., 0] = 200


def shades(folder: PictureFolder, first: int = 0) -> list[int]:
    return [round(float(frame.image[..., 1].mean()) / 20) for frame in folder.since(first)]


@pytest.mark.parametrize("name", ["frame_{}.png", "{}.jpg", "cam2 {} of 12.JPEG"])
def test_pictures_come_in_the_order_of_their_numbers(tmp_path: Path, name: str) -> None:
    folder = PictureFolder(write_pictures(tmp_path / "door", PICTURES, name=name), fps=5)
    frames = list(folder)
    assert [frame.number for frame in frames] == list(range(12))
    assert [frame.pts for frame in frames] == [number / 5 for number in range(12)]
    assert shades(folder) == list(range(12))
    assert abs(int(frames[3].image[8, 8, 0]) - 200) < 4  # red is first
    assert (folder.camera, folder.fps, folder.n_frames) == ("door", 5, 12)
    assert (folder.counts.decoded, folder.counts.skipped) == (12, 0)
    assert {frame.epoch for frame in folder} == {2}
    assert "door" in repr(folder)


def test_pictures_before_the_first_that_is_wanted_are_not_read(tmp_path: Path) -> None:
    folder = PictureFolder(write_pictures(tmp_path, PICTURES))
    (tmp_path / "frame_1.png").write_bytes(b"")
    assert shades(folder, first=9) == [9, 10, 11]
    assert folder.counts.skipped == 0
    assert [frame.number for frame in folder.since(10)] == [10, 11]
    assert list(folder.since(12)) == []


@pytest.mark.parametrize("damage", ["cut", "empty", "other", "gone"])
def test_a_broken_picture_is_named_and_leaves_a_gap(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (4, 48, 64, 3), np.uint8)
    folder = PictureFolder(write_pictures(tmp_path, noise, name="{}.jpg"))
    file = tmp_path / "2.jpg"
    match damage:
        case "cut":
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        case "empty":
            file.write_bytes(b"")
        case "other":
            file.write_bytes(b"GIF89a and nothing more")
        case _:
            file.unlink()
    with caplog.at_level(logging.WARNING, "stepvad.video"):
        assert [frame.number for frame in folder] == [0, 2, 3]
    assert f"{file}: expected a picture" in caplog.text
    assert (folder.counts.decoded, folder.counts.skipped) == (3, 1)


def test_a_folder_without_a_whole_picture_raises(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(b"no picture")
    with pytest.raises(DataError, match="expected pictures, got 3 that are damaged"):
        list(PictureFolder(tmp_path))


def test_a_picture_that_is_too_large_is_not_decoded(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(grey_jpeg(16000, 16000))
    (tmp_path / "2.jpg").write_bytes(grey_jpeg(64, 48))
    folder = PictureFolder(tmp_path)
    assert [frame.image.shape for frame in folder] == [(48, 64, 3)]
    assert folder.counts.skipped == 1


@pytest.mark.parametrize(
    ("names", "got"),
    [
        ([], "got none and 0 other entries"),
        (["a.mp4"], "got none and 1 other entry"),
        ([".hidden_1.jpg"], "got none and 0 other"),
        (["1.jpg", "2.png"], r"got 2: #.jpg, #.png \(# is a number\)"),
        (["a_1.jpg", "b_1.jpg"], "got 2: a_#.jpg, b_#.jpg"),
        (
            ["anna.jpg", "bert.jpg", "carl.jpg", "dora.jpg"],
            "got 4: anna.jpg, bert.jpg, carl.jpg, …",
        ),
    ],
)
def test_a_folder_that_is_no_recording_is_refused(
    tmp_path: Path, names: list[str], got: str
) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=got):
        PictureFolder(tmp_path)


def test_other_files_beside_the_pictures_are_ignored(tmp_path: Path) -> None:
    write_pictures(tmp_path, PICTURES)
    (tmp_path / "labels.csv").touch()
    (tmp_path / "._frame_3.png").touch()
    (tmp_path / "frame_99.png").mkdir()
    assert PictureFolder(tmp_path).n_frames == 12


def test_footage_is_a_file_or_a_folder(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "frames.d", PICTURES)
    opened = open_footage(folder, picture_rate=7)
    assert isinstance(opened, PictureFolder)
    assert (opened.camera, opened.fps) == ("frames.d", 7)
    assert isinstance(open_footage(write_video(tmp_path / "a.avi"), picture_rate=7), VideoFile)
    with pytest.raises(DataError, match="got no file"):
        open_footage(tmp_path / "nothing")


def test_a_change_in_a_folder_changes_its_fingerprint(tmp_path: Path) -> None:
    write_pictures(tmp_path, PICTURES)
    digests = [footage_digest(tmp_path)]
    (tmp_path / "notes.txt").touch()
    assert footage_digest(tmp_path) == digests[0]
    file = tmp_path / "frame_12.png"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"x")
    digests.append(footage_digest(tmp_path))
    file.write_bytes(content + b"x")
    digests.append(footage_digest(tmp_path))
    (tmp_path / "frame_5.png").rename(tmp_path / "frame_13.png")
    digests.append(footage_digest(tmp_path))
    assert len(set(digests)) == 4


def frame(number: int, pts: float | None) -> Frame:
    dot = av.VideoFrame.from_ndarray(np.zeros((1, 1, 3), np.uint8))
    return Frame("door", number, pts, 0.0, Picture(dot), 0)


def times(fps: float, n: int) -> list[Frame]:
    return [frame(at, at / fps) for at in range(n)]


def test_every_second_frame() -> None:
    taken = list(at_rate(times(10, 7), 5))
    assert [one.pts for one in taken] == [0, 0.2, 0.4, 0.6]
    assert [one.number for one in taken] == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(3))
def test_jitter_takes_the_same_frames(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frames = [frame(at, 7 + at / 30 + float(rng.uniform(-0.008, 0.008))) for at in range(300)]
    taken = list(at_rate(frames, 10))
    assert [one.number for one in taken] == list(range(100))


def test_an_odd_ratio_keeps_time() -> None:
    taken = list(at_rate(times(25, 250), 10))
    apart = [one.number / 10 - (one.pts or 0) for one in taken]
    assert max(map(abs, apart)) <= 1 / 25
    assert len(taken) == 100


def test_frames_that_a_camera_lost_are_missing_numbers() -> None:
    taken = list(at_rate([one for one in times(10, 40) if not 10 <= one.number < 20], 5))
    assert [one.number for one in taken] == [*range(5), *range(10, 20)]


def test_without_stream_time_the_rate_counts() -> None:
    assert [one.number for one in at_rate([frame(at, None) for at in range(6)], 5, 10)] == [0, 1, 2]


def test_an_extraction_at_a_lower_rate(tmp_path: Path) -> None:
    """Poses of every second frame, at half the rate; a stopped one goes on to the same poses."""
    n = 20
    images = np.arange(n, dtype=np.uint8)[:, None, None, None] * np.ones((64, 64, 3), np.uint8)
    path = write_images(tmp_path / "a.mkv", images)
    scene = Scene([[standing(100.0 + at)] for at in range(256)], [[0]] * 256)

    def extracted(name: str, rate: float, end: int = n + 1) -> list[int] | None:
        stop = threading.Event()

        def report(now: Progress) -> None:
            if now.done >= end:
                stop.set()

        options = ExtractionOptions(rate=rate, stop=stop, report=report)
        with Parts(tmp_path / name, {}) as parts:
            found = extract_file(VideoFile(path), scene, parts, options)
        if found is None:
            return None
        assert found.clip.fps == min(rate, 10)
        (track,) = found.clip.tracks
        return track.frames.tolist()

    assert extracted("half", 5.0) == list(range(10))
    assert extracted("all", 30.0) == list(range(n))
    assert extracted("cut", 5.0, end=7) is None
    assert extracted("cut", 5.0) == list(range(10))


SIDE = 16_000
SMALL = 20

READ = """
import resource, sys
from stepvad.errors import DataError
from stepvad.video.source import VideoFile
limit = 2_000_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    video = VideoFile(sys.argv[1])
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
