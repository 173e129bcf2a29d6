"""Small videos with known frames."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np

N_FRAMES = 30
STEP = 8


def write_video(
    path: Path,
    *,
    codec: str = "mpeg4",
    size: tuple[int, int] = (64, 48),
    n_frames: int = N_FRAMES,
    form: str | None = None,
) -> Path:
    """Ten frames a second; the left of frame i has the brightness i * STEP, the right is noise."""
    import av

    noise = np.random.default_rng(0)
    with av.open(str(path), "w", format=form) as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = 5
        stream.bit_rate = 2_000_000
        for i in range(n_frames):
            image = np.full((size[1], size[0], 3), i * STEP, np.uint8)
            image[:, size[0] // 2 :] = noise.integers(0, 256, (size[1], size[0] // 2, 3))
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = i, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path
