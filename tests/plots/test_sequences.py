from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from numpy.typing import NDArray

from stepvad.plots.sequences import SHADES, SequenceRow, draw_sequences, shown_frames
from stepvad.skeletons import BOX, Skeleton


@pytest.fixture
def windows() -> NDArray[np.float32]:
    """Two windows of a box that goes to the right while twelve frames last, and to the left."""
    corners = np.array([[-1, 1, 1, -1], [-2, -2, 2, 2]], dtype=np.float32)
    way = np.linspace(-3, 3, 12, dtype=np.float32) * np.array([[[1]], [[0]]], np.float32)
    return np.stack([corners[..., None] + way, corners[..., None] - way])


def columns_of(picture: Path, colour: str) -> NDArray[np.int64]:
    """Columns of a picture in which a colour occurs."""
    wanted = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    pixels = np.asarray(imread(picture))[..., :3]
    return np.flatnonzero((np.abs(pixels - wanted).max(axis=2) < 0.02).any(axis=0))


def test_the_first_the_middle_and_the_last_frame_are_shown() -> None:
    assert shown_frames(12).tolist() == [0, 6, 11]
    assert shown_frames(2).tolist() == [0, 1]


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_late_frames_are_darker_and_stand_where_people_went(
    windows: NDArray[np.float32], tmp_path: Path, apart: float
) -> None:
    row = SequenceRow("goes", windows[:1])
    draw_sequences([row], ["right"], tmp_path / "a.png", skeleton=BOX, apart=apart)
    early, late = (columns_of(tmp_path / "a.png", shade) for shade in (SHADES[0], SHADES[-1]))
    assert early.max() < late.min()
    row = SequenceRow("goes", windows[1:])
    draw_sequences([row], ["left"], tmp_path / "b.png", skeleton=BOX, apart=apart)
    early, late = (columns_of(tmp_path / "b.png", shade) for shade in (SHADES[0], SHADES[-1]))
    assert late.max() < early.min()


def test_the_same_windows_give_the_same_bytes_and_ghosts_are_grey(
    windows: NDArray[np.float32], tmp_path: Path
) -> None:
    rows = [SequenceRow("one", windows, windows[::-1]), SequenceRow("two", windows)]
    for name in "ab":
        draw_sequences(rows, ["a", "b"], tmp_path / f"{name}.png", skeleton=BOX, caption="both")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert len(columns_of(tmp_path / "a.png", "#CCCCCC")) > 10
    draw_sequences(rows[1:], ["a", "b"], tmp_path / "c.png", skeleton=BOX)
    assert len(columns_of(tmp_path / "c.png", "#CCCCCC")) < 10


def test_joints_without_bones_are_dots(windows: NDArray[np.float32], tmp_path: Path) -> None:
    joints = Skeleton("joints4", ("a", "b", "c", "d"))
    draw_sequences([SequenceRow("dots", windows)], ["a", "b"], tmp_path / "a.png", skeleton=joints)
    assert len(columns_of(tmp_path / "a.png", SHADES[-1])) > 5
