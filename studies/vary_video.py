"""More footage from little: a video as it is, mirrored, and its left and right three quarters.

python -m studies vary-video VIDEO -o DIRECTORY
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

Picture = np.ndarray
VARIANTS: Mapping[str, Callable[[Picture], Picture]] = {
    "whole": lambda picture: picture,
    "mirrored": lambda picture: picture[:, ::-1],
    "left": lambda picture: picture[:, : _three_quarters(picture)],
    "right": lambda picture: picture[:, -_three_quarters(picture) :],
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("video", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    for name, change in VARIANTS.items():
        write(given.video, given.output / f"{given.video.stem}-{name}.mkv", change)


def write(video: Path, path: Path, change: Callable[[Picture], Picture]) -> None:
    """A changed copy, with little loss."""
    with av.open(str(video)) as source, av.open(str(path), "w") as target:
        rate = Fraction(source.streams.video[0].average_rate or 10)
        stream = target.add_stream("libx264", rate=rate)
        stream.pix_fmt, stream.options = "yuv420p", {"preset": "veryfast", "crf": "12"}
        for number, frame in enumerate(source.decode(video=0)):
            picture = np.ascontiguousarray(change(frame.to_ndarray(format="bgr24")))
            if not number:
                stream.height, stream.width = picture.shape[:2]
            changed = av.VideoFrame.from_ndarray(picture, format="bgr24")
            changed.pts, changed.time_base = number, 1 / rate
            target.mux(stream.encode(changed))
        target.mux(stream.encode())


def _three_quarters(picture: Picture) -> int:
    return picture.shape[1] * 3 // 8 * 2
