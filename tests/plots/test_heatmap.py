from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from stepvad.errors import DataError
from stepvad.plots.heatmap import Grid, _ink, draw_heatmaps

CELLS = {(3, 8): 80.0, (12, 8): 82.0, (12, 64): 90.0}


def test_a_grid_has_a_row_for_each_k_and_a_column_for_each_t() -> None:
    grid = Grid.of(CELLS)
    assert (grid.T, grid.K) == ((3, 12), (8, 64))
    np.testing.assert_array_equal(grid.values, [[80, 82], [np.nan, 90]])
    assert grid.best() == (1, 1)


def test_a_missing_cell_is_blank_and_the_highest_is_the_lightest(tmp_path: Path) -> None:
    draw_heatmaps({"STEP": Grid.of(CELLS)}, tmp_path / "map.png")
    pixels = np.asarray(imread(tmp_path / "map.png"))[..., :3]
    blank = np.abs(pixels - 0xF2 / 255).max(axis=2) < 0.01
    yellow = np.abs(pixels - np.array([0xFD, 0xE7, 0x25]) / 255).max(axis=2) < 0.02
    frame = np.abs(pixels - np.array([0xD5, 0x5E, 0x00]) / 255).max(axis=2) < 0.02
    assert min(blank.mean(), yellow.mean()) > 0.03
    assert frame.mean() > 0.003
    rows, columns = (np.flatnonzero(yellow.any(axis=axis)) for axis in (1, 0))
    blank_columns = np.flatnonzero(blank.mean(axis=0) > 0.1)
    assert rows.min() < len(pixels) / 2  # K grows upwards
    assert blank_columns.max() < columns.max()


def test_panels_share_one_scale(tmp_path: Path) -> None:
    low = Grid.of({cell: value - 40 for cell, value in CELLS.items()})
    draw_heatmaps({"a": Grid.of(CELLS), "b": low}, tmp_path / "map.png")
    draw_heatmaps({"a": Grid.of(CELLS), "b": low}, tmp_path / "again.png")
    assert (tmp_path / "map.png").read_bytes() == (tmp_path / "again.png").read_bytes()
    pixels = np.asarray(imread(tmp_path / "map.png"))[..., :3]
    right = pixels[:, pixels.shape[1] // 2 : int(0.85 * pixels.shape[1])]
    yellow = np.abs(right - np.array([0xFD, 0xE7, 0x25]) / 255).max(axis=2) < 0.1
    assert yellow.mean() < 0.001


def test_one_cell_and_no_figure_are_drawn_too(tmp_path: Path) -> None:
    draw_heatmaps({"one": Grid.of({(12, 48): 90.0})}, tmp_path / "one.png")
    draw_heatmaps({"none": Grid.of({(12, 48): np.nan})}, tmp_path / "none.png")
    assert Grid.of({(12, 48): np.nan}).best() is None


def test_numbers_stand_out_from_their_cells() -> None:
    assert _ink(np.array([1.0, 1.0, 0.0, 1.0])) == "black"
    assert _ink(np.array([0.2, 0.1, 0.4, 1.0])) == "white"


def test_no_panel_and_a_grid_of_another_shape_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected at least one panel, got none"):
        draw_heatmaps({}, tmp_path / "map.png")
    with pytest.raises(DataError, match=r"of shape \(1, 2\), got \(2, 1\)"):
        Grid((3, 12), (8,), np.zeros((2, 1)))
