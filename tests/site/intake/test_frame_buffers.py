"""Buffers that processes share: who owns one, and when its memory goes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from stepvad.errors import DataError
from stepvad.site.intake import frame_buffers
from stepvad.site.intake.child_messages import ImagePlace
from stepvad.site.intake.frame_buffers import BufferPool, map_images, place_images
from tests.site.intake.pools import grey, is_open, read, write

SHARED = Path("/dev/shm")


def test_a_buffer_is_not_lent_while_its_image_is_held() -> None:
    pool = BufferPool(3, 192)
    first, second = write(pool, 0, grey(1)), write(pool, 2, grey(2))
    assert pool.lend_freed() == ()
    with pytest.raises(DataError, match="a buffer that was lent to it, got 0"):
        pool.hold(0, (8, 8, 3))
    first.free()
    with pytest.raises(DataError, match="a buffer that was lent to it, got 0"):
        pool.hold(0, (8, 8, 3))  # the capture process has not heard of it yet
    assert pool.lend_freed() == (0,)
    assert (read(second) == 2).all()
    again = write(pool, 0, grey(3))
    assert (read(again) == 3).all()


def test_a_buffer_is_freed_once() -> None:
    pool = BufferPool(2, 192)
    image = write(pool, 1, grey(1))
    image.free()
    image.free()
    assert pool.lend_freed() == (1,)
    newer = write(pool, 1, grey(2))
    image.free()
    assert pool.lend_freed() == ()
    newer.free()
    assert pool.lend_freed() == (1,)


@pytest.mark.parametrize(("number", "shape"), [(2, (8, 8, 3)), (0, (64, 64, 3))])
def test_a_buffer_that_does_not_exist_or_is_too_small_is_refused(
    number: int, shape: tuple[int, int, int]
) -> None:
    pool = BufferPool(2, 192)
    with pytest.raises(DataError, match="capture: expected"):
        pool.hold(number, (shape[0], shape[1], 3))


def test_a_retired_pool_closes_with_its_last_image() -> None:
    pool = BufferPool(2, 192)
    images = [write(pool, number, grey(number)) for number in range(2)]
    pool.retire()
    images[0].free()
    assert is_open(pool.fd)
    assert (read(images[1]) == 1).all()
    images[1].free()
    assert not is_open(pool.fd)
    assert not pool.is_open


def test_a_pool_that_nobody_knows_any_more_is_closed() -> None:
    pool = BufferPool(2, 192)
    write(pool, 0, grey(0))
    fd = pool.fd
    del pool
    assert not is_open(fd)


def test_images_of_several_pools_are_mapped_read_only_and_descriptors_closed() -> None:
    pools = [BufferPool(3, 192), BufferPool(3, 3 * 100 * 90)]
    shared = [
        write(pools[0], 2, grey(7)),
        write(pools[1], 1, grey(8, 100, 90)),
        write(pools[0], 0, grey(9, 4, 6)),
    ]
    places, fds = place_images(shared)
    assert fds == [pool.fd for pool in pools]
    copies = [os.dup(fd) for fd in fds]
    images = map_images(places, copies)
    assert [image.shape for image in images] == [(8, 8, 3), (100, 90, 3), (4, 6, 3)]
    assert [np.unique(image).tolist() for image in images] == [[7], [8], [9]]
    assert not any(image.flags.writeable for image in images)
    assert not any(map(is_open, copies))


def test_an_image_beyond_the_pool_is_refused() -> None:
    pool = BufferPool(1, 192)
    fd = os.dup(pool.fd)
    with pytest.raises(ValueError, match="mmap"):
        map_images([ImagePlace(file=0, offset=pool.buffer_bytes, shape=(8, 8, 3))], [fd])
    assert not is_open(fd)


@pytest.mark.skipif(sys.platform != "linux", reason="files are sealed on Linux only")
def test_no_process_can_shrink_a_pool_under_its_readers() -> None:
    pool = BufferPool(1, 192)
    with pytest.raises(PermissionError):
        os.ftruncate(pool.fd, 0)


@pytest.mark.skipif(not SHARED.exists(), reason="shared memory has no directory here")
def test_shared_memory_has_no_name() -> None:
    before = {*SHARED.iterdir()}
    pool, other = BufferPool(1, 192), frame_buffers._unlinked_memory()  # of Linux, of others
    try:
        os.ftruncate(other, 4096)
        assert os.pwrite(other, b"pixels", 0) == 6
        new = {*SHARED.iterdir()} - before
        assert not [path for path in new if frame_buffers.NAME in path.name]
        assert pool.is_open
    finally:
        os.close(other)
