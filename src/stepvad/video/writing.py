"""Write images to files: MP4 that plays in any browser, and PNG."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from stepvad.errors import StepvadError
from stepvad.files.atomic import replacing
from stepvad.video.drawing import opencv
from stepvad.video.pixels import Image
from stepvad.video.source import pyav

ENCODER = "libx264"
"""Bundled with PyAV's wheels and licensed under the GPL, which binds products that ship them."""
QUALITY = {"crf": "20", "preset": "veryfast"}
BT709 = 1
"""FFmpeg's code for HDTV colour (ITU-R BT.709): matrix, primaries and transfer."""


@contextmanager
def recording(path: Path, size: tuple[int, int], fps: float) -> Iterator[Callable[[Image], None]]:
    """Yield a function that appends an image `(H, W, 3)` to an MP4; the file is written atomically.

    All images have the same size. H.264 in YUV 4:2:0 with the index first, so browsers can start
    playing before the download completes.
    """
    av = pyav()
    rate = Fraction(fps).limit_denominator(1001)
    check_encoder()
    with (
        replacing(path) as temporary,
        av.open(str(temporary), "w", format="mp4", options={"movflags": "+faststart"}) as container,
    ):
        stream = container.add_stream(ENCODER, rate=rate, options=QUALITY)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        context = stream.codec_context
        context.colorspace = context.color_primaries = context.color_trc = BT709
        taken = 0

        def record(image: Image) -> None:
            nonlocal taken
            frame = _frame(av, image)
            frame.pts, frame.time_base = taken, 1 / rate
            container.mux(stream.encode(frame))
            taken += 1

        yield record
        container.mux(stream.encode())


def check_encoder() -> None:
    """Raise if PyAV was built without an H.264 encoder."""
    av = pyav()
    try:
        av.codec.Codec(ENCODER, "w")
    except ValueError as error:
        raise StepvadError(
            f"MP4: expected PyAV with the encoder {ENCODER}, got one without",
            hint="pip install --force-reinstall --only-binary av av, or write stills alone",
        ) from error


def write_png(image: Image, path: Path) -> None:
    """Write an image as PNG, atomically."""
    cv2 = opencv()
    _, encoded = cv2.imencode(".png", image[..., ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 9])
    with replacing(path) as temporary:
        temporary.write_bytes(encoded.tobytes())


def _frame(av: Any, image: Image) -> Any:
    """Convert an image to a video frame in BT.709 colour."""
    whole = av.VideoFrame.from_ndarray(image, format="rgb24")
    return whole.reformat(format="yuv420p", dst_colorspace="ITU709")
