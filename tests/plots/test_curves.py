from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from stepvad.errors import DataError
from stepvad.plots import style
from stepvad.plots.curves import AxisLabels, Series, draw_curves, draw_panels


def share_of(picture: Path, colour: str, *, half: str = "all") -> float:
    """How much of a picture, or of its left or right half, has about this colour."""
    pixels = np.asarray(imread(picture))[..., :3]
    middle = pixels.shape[1] // 2
    part = {"all": pixels, "left": pixels[:, :middle], "right": pixels[:, middle:]}[half]
    wanted = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return float((np.abs(part - wanted).max(axis=2) < 0.05).mean())


@pytest.fixture
def step() -> Series:
    return Series.of({24: [90, 92], 6: [80, 84], 12: [85]}, method="step")


def test_a_series_is_the_mean_and_deviation_over_seeds_in_order(step: Series) -> None:
    assert step.x.tolist() == [6, 12, 24]
    assert step.mean.tolist() == [82, 85, 91]
    np.testing.assert_allclose(step.spread, [np.sqrt(8), np.nan, np.sqrt(2)])


def test_a_method_has_its_colour_and_the_same_bytes_every_time(
    step: Series, tmp_path: Path
) -> None:
    for name in "ab":
        draw_curves(
            {"STEP": step},
            tmp_path / f"{name}.png",
            AxisLabels("T", "AUROC (%)", "log2"),
        )
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert share_of(tmp_path / "a.png", style.BLUE) > 0.003
    assert share_of(tmp_path / "a.png", style.VERMILION) == 0


def test_the_papers_line_is_thin_and_dashed(step: Series, tmp_path: Path) -> None:
    paper = Series(step.x, step.mean, 0 * step.spread, "step", quoted=True)
    draw_curves({"STEP": step}, tmp_path / "ours.png", AxisLabels("T", "AUROC (%)"))
    draw_curves(
        {"the paper": paper}, tmp_path / "paper.png", AxisLabels("T", "AUROC (%)"), title="walkers"
    )
    ours, theirs = (share_of(tmp_path / f"{who}.png", style.BLUE) for who in ("ours", "paper"))
    assert 0 < theirs < ours


def test_each_data_set_has_a_panel(step: Series, tmp_path: Path) -> None:
    raw = Series.of({6: [80.0], 12: [70.0]}, look=style.LineStyle(style.VERMILION))
    panels = {"left": {"STEP": step}, "right": {"anything": raw}}
    draw_panels(panels, tmp_path / "two.png", AxisLabels("T", "AUROC (%)"))
    rows = np.asarray(imread(tmp_path / "two.png")).shape[0]
    assert rows < 700
    assert share_of(tmp_path / "two.png", style.VERMILION, half="right") > 0.002
    assert share_of(tmp_path / "two.png", style.BLUE, half="left") > 0.002


def test_many_points_a_gap_and_nothing_at_all_are_drawn_too(tmp_path: Path) -> None:
    x = np.arange(1.0, 200.0)
    gap = Series(x, np.where(x == 50, np.nan, 1 / x), np.zeros_like(x))
    draw_curves({"gap": gap}, tmp_path / "gap.png", AxisLabels("K", "error", "log2", "log"))
    draw_curves({}, tmp_path / "empty.png", AxisLabels("K", "error"))
    assert share_of(tmp_path / "gap.png", style.BLUE) > 0.002
    assert (tmp_path / "empty.png").stat().st_size > 1000


def test_a_series_with_more_places_than_figures_is_refused() -> None:
    with pytest.raises(DataError, match=r"of one shape \(n,\), got \[\(1,\), \(2,\)\]; give one"):
        Series(np.zeros(2), np.zeros(1), np.zeros(1))
