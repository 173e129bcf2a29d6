"""The sheet of walkers shows everything that they do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from stepvad.poses import Track
from studies.walkers_sheet import PersonStrip, draw_contact_sheet, spread, strips


@pytest.fixture(scope="module")
def rows() -> list[PersonStrip]:
    return strips(seed=0, columns=4, rounds=1)


def test_everything_that_walkers_do_has_a_row(rows: list[PersonStrip]) -> None:
    assert [strip.title for strip in rows] == [
        "walk", "stand", "run", "fall", "cycle", "backwards", "crouch", "fight"
    ]  # fmt: skip
    assert all(len(strip.poses) == 4 for strip in rows)


def test_a_sheet_is_small_and_shows_both_sides_in_colour(
    rows: list[PersonStrip], tmp_path: Path
) -> None:
    draw_contact_sheet(rows, tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").stat().st_size < 300_000
    picture = np.asarray(imread(tmp_path / "sheet.png"))[..., :3]
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):
        near = np.abs(picture - np.array(colour) / 255).max(axis=2) < 0.1
        assert 0.001 < near.mean() < 0.1
    height = picture.shape[0] // len(rows)
    for row in range(len(rows)):
        assert picture[row * height : (row + 1) * height].min() < 0.5  # no row is empty


def test_the_same_people_give_the_same_bytes(rows: list[PersonStrip], tmp_path: Path) -> None:
    for name in "ab":
        draw_contact_sheet(rows[:2], tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_poses_are_spread_from_the_first_chosen_to_the_last() -> None:
    chosen = np.array([0, 1, 1, 1, 1, 1, 0, 1, 0], dtype=np.bool_)
    assert spread(chosen, 3).tolist() == [1, 3, 7]
    assert spread(chosen, 20).tolist() == [1, 2, 3, 4, 5, 7]


def test_confidence_that_is_not_a_number_and_a_flat_pose_are_drawn_too(tmp_path: Path) -> None:
    nothing = np.zeros((1, 17, 2), dtype=np.float32)
    unsure = Track(1, np.array([0]), nothing, np.full((1, 17), np.nan, dtype=np.float32))
    draw_contact_sheet([PersonStrip("$nobody", unsure, np.array([0]))], tmp_path / "sheet.png")
    draw_contact_sheet([], tmp_path / "empty.png")
    assert (tmp_path / "sheet.png").stat().st_size > 500
