"""Drawings of places: edges of a picture, and nothing else of it."""

from __future__ import annotations

import numpy as np
import pytest

from stepvad.people import Boxes, People
from stepvad.site.intake.place_drawing import draw_place, drawing_bytes, drawing_size
from stepvad.video.source import Image


def room(width: int = 960, height: int = 540) -> Image:
    """A grey wall with a lighter door in it."""
    image = np.full((height, width, 3), 60, np.uint8)
    image[height // 3 :, width // 4 : width // 2] = 180
    return image


def people(*confidence: float) -> People:
    """People around the left side of the door, with joints so sure."""
    n = len(confidence)
    corners = np.tile(np.array([200, 210, 280, 390], np.float32), (n, 1))
    boxes = Boxes(corners, np.ones(n, np.float32))
    sure = np.repeat(np.array(confidence, np.float32).reshape(n, 1), 17, axis=1)
    return People(boxes, np.ones((n, 17, 2), np.float32), sure)


def bits_of(drawing: bytes, size: tuple[int, int]) -> np.ndarray:
    width, height = drawing_size(size)
    rows = np.frombuffer(drawing, np.uint8).reshape(height, -1)
    return np.unpackbits(rows, axis=1)[:, :width]


def test_a_door_becomes_its_outline() -> None:
    drawing = draw_place(room(), people(), 0.25)
    assert drawing is not None
    bits = bits_of(drawing, (960, 540))
    assert bits.shape == (270, 480)
    rows, columns = np.nonzero(bits)
    near = (np.abs(columns - 120) <= 2) | (np.abs(columns - 240) <= 2) | (np.abs(rows - 90) <= 2)
    assert near.all(), "edges are where the door ends"
    assert bits[100:, 115:125].any(axis=1).all()
    assert bits[100:, 235:245].any(axis=1).all()
    assert not bits[100:, 130:230].any(), "within the door there is none"


def test_a_picture_in_the_dark_is_not_drawn() -> None:
    dark = np.random.default_rng(1).integers(0, 6, (540, 960, 3), np.uint8)
    assert draw_place(dark, people(), 0.25) is None


def test_somebody_in_view_is_not_drawn() -> None:
    assert draw_place(room(), people(0.2, 0.3), 0.25) is None
    assert draw_place(room(), people(0.2, 0.2), 0.25) is not None


def test_what_may_be_a_person_is_left_blank() -> None:
    drawing = draw_place(room(), people(0.2), 0.25)
    assert drawing is not None
    bits = bits_of(drawing, (960, 540))
    assert not bits[95:205, 90:150].any()
    assert bits[210:, 115:125].any(axis=1).all()
    assert bits[100:, 235:245].any(axis=1).all()


@pytest.mark.parametrize(
    ("size", "drawn"),
    [
        ((1920, 1080), (480, 270)),
        ((1080, 1920), (270, 480)),
        ((64, 48), (64, 48)),
        ((9000, 1), (480, 1)),
    ],
)
def test_sizes(size: tuple[int, int], drawn: tuple[int, int]) -> None:
    assert drawing_size(size) == drawn
    assert drawing_bytes(size) == -(-drawn[0] // 8) * drawn[1]


def test_sides_that_are_no_multiple_of_eight() -> None:
    drawing = draw_place(room(101, 77), people(), 0.25)
    assert drawing is not None
    assert len(drawing) == drawing_bytes((101, 77)) == 13 * 77
