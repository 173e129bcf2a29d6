from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from stepvad.plots.scene_sheet import ClipStrip, draw_scenes
from stepvad.poses import Clip

SIZE = (1280, 720)
ORANGE = (0xD5 / 255, 0x5E / 255, 0.0)


@pytest.fixture
def strip(walkers: list[Clip]) -> ClipStrip:
    abnormal = np.zeros(walkers[0].n_frames, dtype=np.bool_)
    abnormal[100:] = True
    return ClipStrip(walkers[0], "walk", [50, 150], abnormal)


def orange_share(picture: Path, *, left: bool) -> float:
    pixels = np.asarray(imread(picture))[..., :3]
    half = pixels[:, : pixels.shape[1] // 2] if left else pixels[:, pixels.shape[1] // 2 :]
    return float((np.abs(half - ORANGE).max(axis=2) < 0.05).mean())


def test_only_abnormal_pictures_have_an_orange_frame(strip: ClipStrip, tmp_path: Path) -> None:
    draw_scenes([strip], tmp_path / "sheet.png", size=SIZE, title="street")
    assert orange_share(tmp_path / "sheet.png", left=True) == 0
    assert orange_share(tmp_path / "sheet.png", left=False) > 0.005


def test_people_fill_the_picture(strip: ClipStrip, tmp_path: Path) -> None:
    draw_scenes([strip], tmp_path / "sheet.png", size=SIZE, title="")
    pixels = np.asarray(imread(tmp_path / "sheet.png"))[30:-5, 5:-5, :3]
    coloured = np.flatnonzero((np.ptp(pixels, axis=2) > 0.3).any(axis=1))
    assert np.ptp(coloured) > 0.5 * len(pixels)


def test_the_same_clips_give_the_same_bytes(strip: ClipStrip, tmp_path: Path) -> None:
    for name in "ab":
        draw_scenes([strip, strip], tmp_path / f"{name}.png", size=SIZE, title="street")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_an_empty_street_and_an_empty_sheet_are_drawn_too(tmp_path: Path) -> None:
    empty = ClipStrip(Clip("nobody", 25.0, 5, ()), "nobody", [0, 4], np.zeros(5, dtype=np.bool_))
    draw_scenes([empty], tmp_path / "nobody.png", size=SIZE, title="")
    draw_scenes([], tmp_path / "nothing.png", size=SIZE, title="")
    assert (tmp_path / "nobody.png").stat().st_size > 500
