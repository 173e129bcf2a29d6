"""Images in shared buffers for tests, written and read as children do."""

from __future__ import annotations

import os

import numpy as np

from stepvad.intake.frame_buffers import BufferPool, SharedImage, map_images, place_images
from stepvad.video.pixels import Image


def write(pool: BufferPool, number: int, image: Image) -> SharedImage:
    """An image in a buffer, as if a capture process had filled it."""
    os.pwrite(pool.fd, image.tobytes(), number * pool.buffer_bytes)
    height, width, _ = image.shape
    return pool.hold(number, (height, width, 3))


def read(shared: SharedImage) -> Image:
    """What a pose worker sees of an image, now and later."""
    places, fds = place_images([shared])
    (image,) = map_images(places, [os.dup(fd) for fd in fds])
    return image


def grey(value: int, height: int = 8, width: int = 8) -> Image:
    return np.full((height, width, 3), value, np.uint8)


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
