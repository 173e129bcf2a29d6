"""DOC."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from stepvad.errors import MissingExtraError
from stepvad.model.scoring import Scores, WindowScores
from stepvad.report import plots
from stepvad.report.plots import draw_timeline
from stepvad.windows.body import Repairs


@pytest.fixture
def scores() -> Scores:
    n = 60
    frame = np.concatenate([np.arange(20, 80), np.arange(40, 100)])
    A = np.concatenate([np.zeros(n), np.sin(np.arange(n) / 9)]).astype(np.float32)
    track = np.repeat([1, 2], n)
    c = np.ones(2 * n, np.float32)
    windows = WindowScores(track, frame, c, A[:, None], A)
    return Scores("street", 120, 12, windows, Repairs(), 0)


def share_of(picture: Path, red: float, green: float, blue: float) -> float:
    """How much of a picture has about this colour."""
    distance = np.abs(imread(picture)[..., :3] - (red, green, blue)).max(axis=2)
    return float((distance < 0.06).mean())


def test_true_anomalies_are_shaded(scores: Scores, tmp_path: Path) -> None:
    abnormal = np.zeros(120, dtype=np.bool_)
    abnormal[30:60] = True
    draw_timeline(scores, tmp_path / "plain.png")
    draw_timeline(scores, tmp_path / "truth.png", abnormal=abnormal)
    shade = (0.967, 0.873, 0.8)  # a fifth of the truth's colour on white
    assert share_of(tmp_path / "plain.png", *shade) < 0.001
    assert 0.1 < share_of(tmp_path / "truth.png", *shade) < 0.3


def test_the_same_scores_give_the_same_bytes(scores: Scores, tmp_path: Path) -> None:
    for name in "ab":
        draw_timeline(scores, tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_clip_without_scores_is_drawn_too(tmp_path: Path) -> None:
    nothing = WindowScores.join([], L=3)
    draw_timeline(Scores("nobody", 0, 12, nothing, Repairs(), 0), tmp_path / "empty.png")
    assert (tmp_path / "empty.png").stat().st_size > 1000


def test_a_figure_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"plot needs the plots extra; pip install"):
        plots.new_figure(1, 1)
