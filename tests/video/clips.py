"""Small videos with known frames."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

N_FRAMES = 30
STEP = 8


def write_walker(path: Path, *, n_frames: int = N_FRAMES) -> Path:
    """A white box of 10 by 20 pixels on black that goes one pixel to the right with each frame."""
    return write_images(path, walking_images(n_frames))


def write_images(
    path: Path, images: NDArray[np.uint8], *, numbers: Iterable[int] | None = None
) -> Path:
    """Images `(n, H, W, 3)`, ten a second, without loss; gaps in their numbers are gaps in time."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.height, stream.width = images.shape[1:3]
        stream.pix_fmt = "bgr0"
        for i, image in zip(numbers or range(len(images)), images, strict=True):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = i, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def write_sound(path: Path) -> Path:
    """A file with sound and no picture."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=8000)
        silence = np.zeros((1, 1024), np.float32)
        frame = av.AudioFrame.from_ndarray(silence, format="fltp", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def write_two_sizes(path: Path) -> Path:
    """A video of 64x48 pixels that goes on with 128x96."""
    parts = [
        write_video(
            path.with_name(f"{size[0]}.m2v"), codec="mpeg2video", size=size, form="mpeg2video"
        )
        for size in ((64, 48), (128, 96))
    ]
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    return path


def write_video(
    path: Path,
    *,
    codec: str = "mpeg4",
    size: tuple[int, int] = (64, 48),
    n_frames: int = N_FRAMES,
    form: str | None = None,
) -> Path:
    """Ten frames a second; left the brightness i * STEP in frame i, up to 255, right noise."""
    import av

    noise = np.random.default_rng(0)
    with av.open(str(path), "w", format=form) as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = 5
        stream.bit_rate = 2_000_000
        for i in range(n_frames):
            image = np.full((size[1], size[0], 3), i * STEP % 256, np.uint8)
            image[:, size[0] // 2 :] = noise.integers(0, 256, (size[1], size[0] // 2, 3))
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = i, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def grey_jpeg(width: int, height: int) -> bytes:
    """A grey picture of any size, divisible by 16, for which three bytes make four blocks."""
    import cv2

    data = cv2.imencode(".jpg", np.full((8, 8), 128, np.uint8))[1].tobytes()
    size = data.index(b"\xff\xc0") + 5  # in the header of the frame
    data = data[:size] + height.to_bytes(2) + width.to_bytes(2) + data[size + 4 :]
    scan = data.index(b"\xff\xda") + 2
    header = data[: scan + int.from_bytes(data[scan : scan + 2])]
    # A block that goes on as before is 00 1010 in the usual Huffman tables.
    return header + b"\x28\xa2\x8a" * (width * height // 256) + b"\xff\xd9"


def broken(path: Path, how: str, directory: Path) -> Path:
    """A file cut off in the middle, with noise there, or with some bytes flipped."""
    data = path.read_bytes()
    out = directory / f"{how}{path.suffix}"
    match how:
        case "cut":
            data = data[: len(data) * 6 // 10]
        case "noise":
            noise = bytes(np.random.default_rng(0).integers(0, 256, len(data) // 5, np.uint8))
            middle = len(data) * 2 // 5
            data = data[:middle] + noise + data[middle + len(noise) :]
        case _:
            flips = np.random.default_rng(1).integers(len(data) // 4, len(data) * 3 // 4, 40)
            array = np.frombuffer(data, np.uint8).copy()
            array[flips] ^= 0xFF
            data = array.tobytes()
    out.write_bytes(data)
    return out


def unusable_files(directory: Path) -> dict[str, Path]:
    """Files that are no video, by what they are instead."""
    import av

    whole = write_video(directory / "whole.mp4")
    image = directory / "image.mp4"
    with av.open(str(image), "w", format="image2", options={"update": "1"}) as container:
        stream = container.add_stream("png", rate=1)
        stream.width, stream.height, stream.pix_fmt = 8, 8, "rgb24"
        pixels = np.zeros((8, 8, 3), np.uint8)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    (directory / "empty.mp4").write_bytes(b"")
    (directory / "text.mp4").write_text("this is no video\n" * 100)
    playlist = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n"
    (directory / "list.m3u8").write_text(playlist)
    os.mkfifo(directory / "pipe.mp4")
    return {
        "cut": broken(whole, "cut", directory),
        "image": image,
        "sound": write_sound(directory / "sound.mp4"),
        "empty": directory / "empty.mp4",
        "text": directory / "text.mp4",
        "playlist": directory / "list.m3u8",
        "pipe": directory / "pipe.mp4",
        "directory": directory,
        "missing": directory / "missing.mp4",
        "too long": directory / ("x" * 300 + ".mp4"),
    }


def h264_copy(video: Path, path: Path) -> Path:
    """A copy as cameras send it: a key frame every second, nothing held back."""
    import av

    with av.open(str(video)) as source, av.open(str(path), "w") as target:
        picture = source.streams.video[0]
        rate = Fraction(picture.average_rate or 10)
        stream = target.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt = picture.width, picture.height, "yuv420p"
        stream.options = {"preset": "ultrafast", "tune": "zerolatency", "crf": "20"}
        stream.codec_context.gop_size = round(rate)
        for number, frame in enumerate(source.decode(video=0)):
            copy = frame.reformat(format="yuv420p")
            copy.pts, copy.time_base = number, 1 / rate
            target.mux(stream.encode(copy))
        target.mux(stream.encode())
    return path


def write_pictures(
    folder: Path, images: NDArray[np.uint8], *, name: str = "frame_{}.png", first: int = 1
) -> Path:
    """Images `(n, H, W, 3)` as files of a folder, numbered from `first` without leading zeros."""
    import cv2

    folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images, first):
        cv2.imwrite(str(folder / name.format(number)), image[..., ::-1])
    return folder


def walking_images(n_frames: int = N_FRAMES) -> NDArray[np.uint8]:
    """The images of `write_walker`."""
    images = np.zeros((n_frames, 48, 64, 3), np.uint8)
    for i, image in enumerate(images):
        image[10:30, 5 + i % 40 : 15 + i % 40] = 255
    return images
