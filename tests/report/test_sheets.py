"""Film strips show whom they should."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from stepvad.explain import Explanation, ViewShare
from stepvad.explain.words import Finding
from stepvad.report.sheets import (
    GHOST,
    HEAT,
    draw_explanations,
    shown_frames,
    title,
)
from stepvad.skeletons import COCO17, Skeleton


@pytest.fixture
def explanation() -> Explanation:
    """A made-up person whose left wrist is to blame in the last frames."""
    observed = np.random.default_rng(0).uniform(100, 300, size=(12, 17, 2)).astype(np.float32)
    contributions = np.zeros((12, 17))
    contributions[8:, COCO17.joints.index("left_wrist")] = 1.0
    return Explanation(
        clip="$one$",
        track=7,
        frames=np.arange(120, 132),
        skeleton=COCO17,
        score=4.0,
        confidence=0.8,
        energy=5.0,
        scales={0.1: 1.0},
        base=0.0,
        contributions=contributions,
        observed=observed,
        ghost=observed + 10,
        ghost_energy=-0.1,
        findings=(Finding("left arm", ("raised",), None, 128, 131),),
    )


def test_shares_of_several_views_are_in_the_title(explanation: Explanation, tmp_path: Path) -> None:
    views = (
        ViewShare("pose", "pose over 12 frames", 1.6, 0.0, 0.4, True),
        ViewShare("motion", "motion over 25 frames", 0.0, 0.0, 0.0, False),
        ViewShare("motion", "motion over 12 frames", 2.4, 0.1, 0.6, True),
    )
    several = replace(explanation, views=views, meanings={"speed": 2.3, "growth": -0.1})
    assert title(several).startswith("$one$, track 7: score 4.0 (pose 40 %, motion 60 %). Left arm")
    assert title(explanation).startswith("$one$, track 7: score 4.0. Left arm")
    assert [part.name for part in several.parts][:2] == ["left arm", "speed"]
    draw_explanations([several], tmp_path / "views.png")
    assert share_of(tmp_path / "views.png", HEAT) > 0.001


def share_of(picture: Path, colour: str) -> float:
    wanted = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    pixels = np.asarray(imread(picture))[..., :3]
    return float((np.abs(pixels - wanted).max(axis=2) < 0.02).mean())


def test_ghost_and_heat_are_drawn_and_bytes_repeat(
    explanation: Explanation, tmp_path: Path
) -> None:
    for name in "ab":
        draw_explanations([explanation, explanation], tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert share_of(tmp_path / "a.png", GHOST) > 0.01
    assert share_of(tmp_path / "a.png", HEAT) > 0.005


def test_more_contribution_is_a_larger_dot(explanation: Explanation, tmp_path: Path) -> None:
    draw_explanations([explanation], tmp_path / "one.png")
    everywhere = replace(explanation, contributions=np.ones((12, 17)))
    draw_explanations([everywhere], tmp_path / "all.png")
    assert share_of(tmp_path / "all.png", HEAT) > 1.5 * share_of(tmp_path / "one.png", HEAT)


def test_joints_without_bones_are_dots(explanation: Explanation, tmp_path: Path) -> None:
    dots = replace(explanation, skeleton=Skeleton("dots", tuple(f"j{v}" for v in range(17))))
    draw_explanations([dots], tmp_path / "dots.png")
    assert share_of(tmp_path / "dots.png", GHOST) > 0.002


def test_the_title_says_who_how_much_and_why(explanation: Explanation) -> None:
    assert title(explanation) == "$one$, track 7: score 4.0. Left arm raised, frames 128-131"
    assert title(replace(explanation, findings=())).endswith("score 4.0. Nothing unusual")


def test_five_frames_are_shown_from_the_first_to_the_last() -> None:
    assert shown_frames(12).tolist() == [0, 3, 6, 8, 11]
    assert shown_frames(2).tolist() == [0, 1]
