"""The README: its links lead somewhere, its figures and its picture are those of the code."""

from __future__ import annotations

import importlib
import re

import numpy as np
import pytest

from tests.pages import README, ROOT

DOCS = ROOT / "docs"


def test_links_of_the_readme_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)", README.read_text("utf-8"))
    local = [target for target in targets if "://" not in target]
    assert len(local) > 10
    assert [target for target in local if not (ROOT / target).exists()] == []


def test_the_readme_counts_the_claims_that_hold() -> None:
    page = (DOCS / "benchmarks" / "what-holds.md").read_text("utf-8")
    verdicts = re.findall(r"\*\*(holds|in part|not seen|does not hold): ", page)
    hold, part = verdicts.count("holds"), verdicts.count("in part")
    assert hold + part == len(verdicts)  # none is not seen, or does not hold
    against = page.count(", against it on ")
    words = (
        f"In {hold} of {len(verdicts)} comparisons the paper is right on every data set tried, in "
        f"{part} on some; in {against} of those, a data set shows the opposite"
    )
    assert words in README.read_text("utf-8")


@pytest.mark.slow
def test_the_moving_picture_is_what_its_study_draws() -> None:
    from PIL import Image

    study = importlib.import_module("studies.animation")
    still = np.asarray(Image.open(DOCS / "images" / "demo-still.png"), dtype=float)
    drawn = np.asarray(study.draw(study.tell(), study.STILL), dtype=float)
    assert still.shape == drawn.shape
    assert np.abs(still - drawn).mean() < 1
    with Image.open(DOCS / "images" / "demo.webp") as film:
        assert getattr(film, "n_frames", 1) == study.LAST - study.FIRST + 1
    assert (DOCS / "images" / "demo.webp").stat().st_size < 2e6
