"""Child processes for tests, and images in shared buffers, written and read as children do."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from stepvad.site.intake.frame_buffers import BufferPool, SharedImage, map_images, place_images
from stepvad.site.processes import SupervisedProcess
from stepvad.video.source import Image


@contextmanager
def running(process: SupervisedProcess) -> Iterator[None]:
    """A supervised process, stopped at the end."""
    thread = threading.Thread(target=process.run)
    thread.start()
    try:
        yield
    finally:
        process.stop(0)
        thread.join(30)
    assert not thread.is_alive()


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
