"""Images in memory that processes share, so that no pixel passes through the site's own process.

A pool of buffers is a file without a name: processes get its descriptor, and the system removes
it with the last process that holds it, however that process ends.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from stepvad.errors import DataError
from stepvad.site.intake.child_messages import ImagePlace, Shape
from stepvad.video.source import Image

NAME = "stepvad-frames"
PAGE = mmap.ALLOCATIONGRANULARITY
"""Buffers begin at multiples of it, so that each can be mapped by itself."""


class BufferPool:
    """The buffers of one capture process, owned by the site; thread-safe.

    The capture process may write into those that it was lent. A buffer that it has filled is the
    site's until it is freed. A retired pool closes as soon as the site holds none of its buffers.
    """

    def __init__(self, buffers: int, image_bytes: int) -> None:
        self.buffers = buffers
        self.buffer_bytes = -(-image_bytes // PAGE) * PAGE
        self.fd = _unnamed_file(self.buffers * self.buffer_bytes)
        self._close = weakref.finalize(self, os.close, self.fd)
        self._held: dict[int, int] = {}
        """The serial number of the image in each buffer."""
        self._serials = count()
        self._freed: list[int] = []
        self._is_retired = False
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether its memory is kept."""
        return self._close.alive

    def hold(self, number: int, shape: Shape) -> SharedImage:
        """Take over a filled buffer; raises DataError unless it was lent and the image fits."""
        height, width, channels = shape
        if height * width * channels > self.buffer_bytes:
            raise DataError(
                f"capture: expected an image of at most {self.buffer_bytes} bytes, "
                f"got {width} x {height} pixels"
            )
        with self._lock:
            if number >= self.buffers or number in self._held or number in self._freed:
                raise DataError(f"capture: expected a buffer that was lent to it, got {number}")
            serial = self._held[number] = next(self._serials)
            return SharedImage(self, number, serial, shape)

    def free(self, image: SharedImage) -> None:
        """Make the buffer of an image available again; does nothing the second time."""
        with self._lock:
            if self._held.get(image.number) != image.serial:
                return
            del self._held[image.number]
            self._freed.append(image.number)
            self._close_if_unused()

    def lend_freed(self) -> tuple[int, ...]:
        """The buffers freed since the last call: from now on the capture process may use them."""
        with self._lock:
            freed, self._freed = tuple(self._freed), []
            return freed

    def retire(self) -> None:
        """Accept no more images, and close once those held are freed."""
        with self._lock:
            self._is_retired = True
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._is_retired and not self._held:
            self._close()


@dataclass(frozen=True, slots=True, eq=False)
class SharedImage:
    """An image in a buffer that the site holds."""

    pool: BufferPool
    number: int
    serial: int
    """Counts the images of its pool, from 0."""
    shape: Shape

    def free(self) -> None:
        """Give its buffer back to the pool; the pixels must not be read any more."""
        self.pool.free(self)


def place_images(images: Sequence[SharedImage]) -> tuple[list[ImagePlace], list[int]]:
    """Where a pose worker finds images: their places, and the descriptors that these refer to."""
    fds = [*dict.fromkeys(image.pool.fd for image in images)]
    places = [
        ImagePlace(
            file=fds.index(image.pool.fd),
            offset=image.number * image.pool.buffer_bytes,
            shape=image.shape,
        )
        for image in images
    ]
    return places, fds


def map_images(places: Sequence[ImagePlace], fds: Sequence[int]) -> list[Image]:
    """Map images read-only for as long as the arrays exist, and close the descriptors."""
    try:
        return [_mapped(place, fds[place.file]) for place in places]
    finally:
        for fd in fds:
            os.close(fd)


def _mapped(place: ImagePlace, fd: int) -> Image:
    height, width, channels = place.shape
    memory = mmap.mmap(
        fd,
        height * width * channels,
        flags=mmap.MAP_SHARED,
        prot=mmap.PROT_READ,
        offset=place.offset,
    )
    return np.frombuffer(memory, np.uint8).reshape(place.shape)


def _unnamed_file(size: int) -> int:
    """A descriptor of shared memory without a name."""
    fd = _sealable_memory() if sys.platform == "linux" else _unlinked_memory()
    try:
        os.ftruncate(fd, size)
        if sys.platform == "linux":
            _seal(fd)
    except OSError:
        os.close(fd)
        raise
    return fd


if sys.platform == "linux":

    def _sealable_memory() -> int:
        return os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)

    def _seal(fd: int) -> None:
        """Fix the size: a process that shrank the file would crash those that read it."""
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)


def _unlinked_memory() -> int:
    """Shared memory of other systems, whose name is removed before it has any size."""
    import _posixshmem  # type: ignore[import-not-found]  # what multiprocessing.shared_memory uses

    name = f"/{NAME}-{secrets.token_hex(4)}"
    fd: int = _posixshmem.shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
    _posixshmem.shm_unlink(name)
    return fd
