"""How a site lends frame buffers to a capture process: both ends of the pipe."""

from __future__ import annotations

import mmap
import os
import threading
from typing import NamedTuple

import numpy as np

from stepvad.errors import DataError, os_reason
from stepvad.site.intake.child_messages import (
    MOST_IMAGE_BYTES,
    FrameHeader,
    FreedBuffers,
    PoolOffer,
    PoolRequest,
    decode,
    encode,
)
from stepvad.site.intake.frame_buffers import BufferPool, SharedImage
from stepvad.site.processes import TRANSFER_S, ChildPipe, ChildProcess, HungError
from stepvad.video.source import Image


class BufferLender:
    """The site's end: creates pools for one capture process and tells it which buffers are free.

    Other threads free buffers; only the one that serves the process sends to it.
    """

    def __init__(self, child: ChildProcess, buffers: int) -> None:
        self._child = child
        self._buffers = buffers
        self._pool: BufferPool | None = None
        self._pools = 0

    def offer(self, request: PoolRequest) -> None:
        """Replace the pool by one with larger buffers; images in the old one stay readable."""
        self.retire()
        try:
            self._pool = pool = BufferPool(self._buffers, request.image_bytes)
        except OSError as error:  # out of file handles or memory, perhaps temporarily
            raise HungError(f"got no frame buffers: {os_reason(error)}") from None
        self._pools += 1
        offer = PoolOffer(self._pools, pool.buffers, pool.buffer_bytes)
        self._child.send(encode(offer), fds=[pool.fd])

    def image(self, header: FrameHeader) -> SharedImage:
        """Take over the image of a frame; raises DataError if its buffer was not lent."""
        if self._pool is None or header.pool != self._pools:
            raise DataError(f"capture: expected pool {self._pools}, got {header.pool}")
        return self._pool.hold(header.buffer, header.shape)

    def lend_freed(self) -> None:
        """Tell the process which buffers it may use again."""
        if self._pool is not None and (freed := self._pool.lend_freed()):
            self._child.send(encode(FreedBuffers(self._pools, freed)))

    def retire(self) -> None:
        """Lend no more; the pool is closed when its last image is freed."""
        if self._pool is not None:
            self._pool.retire()
            self._pool = None


class _LentPool(NamedTuple):
    """A pool as its capture process sees it."""

    offer: PoolOffer
    memory: mmap.mmap
    free: list[int]
    """The buffer used last is used first: the others may never take any memory."""


class FilledBuffer(NamedTuple):
    """Where an image was written to."""

    pool: int
    number: int


class BufferBorrower:
    """A capture process's end: writes images into buffers that the site lends it.

    It hears from the site in a thread, which ends the process when the site is gone.
    """

    def __init__(self, site: ChildPipe) -> None:
        self._site = site
        self._changed = threading.Condition()
        self._pool: _LentPool | None = None
        self._requests = 0
        site.listen(self._hear)

    def write(self, image: Image) -> FilledBuffer | None:
        """Write an image into a free buffer; None if there is none."""
        if image.nbytes > MOST_IMAGE_BYTES:
            height, width = image.shape[:2]
            raise DataError(
                f"camera: expected images of at most {MOST_IMAGE_BYTES / 3e6:.0f} megapixels, "
                f"got {width} x {height}",
                hint="choose a smaller resolution in the camera",
            )
        with self._changed:
            pool = self._pool_for(image.nbytes)
            if pool is None or not pool.free:
                return None
            number = pool.free.pop()
        start = number * pool.offer.buffer_bytes
        pixels = np.frombuffer(pool.memory, np.uint8, image.nbytes, start)
        np.copyto(pixels.reshape(image.shape), image)
        return FilledBuffer(pool.offer.pool, number)

    def _pool_for(self, image_bytes: int) -> _LentPool | None:
        """The pool, after a request if its buffers are too small; None if the site lends none."""
        if self._pool is None or self._pool.offer.buffer_bytes < image_bytes:
            self._pool = None
            self._requests += 1
            self._site.send(encode(PoolRequest(image_bytes)))
            self._changed.wait_for(lambda: self._pool is not None, TRANSFER_S)
        return self._pool

    def _hear(self, data: bytes) -> None:
        message = decode(data)
        if isinstance(message, PoolOffer):
            (fd,) = self._site.receive_fds(1)
            try:
                memory = mmap.mmap(fd, message.buffers * message.buffer_bytes)
            finally:
                os.close(fd)
            with self._changed:
                if message.pool == self._requests:  # else a larger one will follow
                    self._pool = _LentPool(message, memory, [*reversed(range(message.buffers))])
                    self._changed.notify()
        elif isinstance(message, FreedBuffers):
            with self._changed:
                if self._pool is not None and self._pool.offer.pool == message.pool:
                    self._pool.free.extend(message.buffers)
        else:
            raise DataError(f"site: expected buffers, got {message.type}")
