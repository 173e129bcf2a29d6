"""Another density in the place of the energy model: all else stays the detector's own."""

from __future__ import annotations

import numpy as np
import pytest

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import ConfigError
from stepvad.evaluation.baselines.neighbours import Neighbours
from stepvad.evaluation.densities import Density, with_density
from stepvad.evaluation.walkers import make_clips
from stepvad.model.footage import hold_out
from stepvad.model.surprise import SurpriseByAge
from stepvad.poses import Clip
from stepvad.windows import cut

TINY = Config(K=6, width=16, max_steps=4, ema_warmup=True)


@pytest.fixture(scope="module")
def footage() -> list[Clip]:
    return [clip for clip, _ in make_clips(8, seed=4, seconds=6.0)]


@pytest.fixture(scope="module")
def several(footage: list[Clip]) -> Detector:
    return Detector.fit(footage, TINY.with_views(("pose", "motion", "place"), 25.0))


def nats_of_knn(detector: Detector, number: int, footage: list[Clip], clip: Clip) -> np.ndarray:
    """-log p of a clip's windows in one view, step by step."""
    part = detector.parts[number]

    def windows(some: list[Clip]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        every = [cut(one, part.config, part.skeleton)[0].windows(slice(None)) for one in some]
        points = [part.model.space.project(one.x) for one in every]
        ages = np.concatenate([one.ages(part.config) for one in every])
        return (
            np.concatenate(points),
            np.concatenate([one.weight(part.config) for one in every]),
            ages,
        )

    learned, ranked = (windows(some) for some in hold_out(footage))
    neighbours = Neighbours(learned[0])
    usual = neighbours.distances(ranked[0])

    def scores(points: np.ndarray, c: np.ndarray) -> np.ndarray:
        return c * ((neighbours.distances(points) - usual.mean()) / usual.std())

    surprise = SurpriseByAge.of(scores(*ranked[:2]).astype(np.float32), ranked[2], part.config)
    *seen, ages = windows([clip])
    return surprise(scores(*seen).astype(np.float32), ages)


@pytest.mark.parametrize("number", [1, 3])
def test_neighbours_are_ranked_as_the_energy_is(
    several: Detector, footage: list[Clip], number: int
) -> None:
    other = with_density(several, "knn", footage)
    scores = other.score(footage[3]).windows
    expected = nats_of_knn(several, number, footage, footage[3])
    rows = np.lexsort((scores.frame, scores.track_id))
    found = np.sort(scores.E[rows, number])
    expected = np.sort(np.append(expected, np.ones(len(rows) - len(expected))))  # too young: 1
    np.testing.assert_allclose(found, expected, atol=0.02)


@pytest.mark.parametrize("density", ["knn", "gmm"])
def test_views_are_joined_as_before_and_the_detector_stays(
    several: Detector, footage: list[Clip], density: Density
) -> None:
    before = several.score(footage[0]).windows
    replaced = with_density(several, density, footage, seed=1)
    other = replaced.score(footage[0]).windows
    after = several.score(footage[0]).windows
    assert before.E.tobytes() == after.E.tobytes()
    assert other.E.shape == before.E.shape
    assert not np.allclose(other.E, before.E)
    late = other.frame == other.frame.max()
    shares = [view.share for view in several.config.views]
    expected = np.average(other.E[late], axis=1, weights=shares)
    np.testing.assert_allclose(other.A[late], expected, rtol=1e-4)
    _, unseen = hold_out(footage)
    nats = np.concatenate([replaced.score(clip).windows.E[:, 1] for clip in unseen])
    assert nats.mean() == pytest.approx(1.0, abs=0.1)  # -log p of what it was ranked on


def test_one_view_has_nothing_to_replace_and_step_is_the_energy_itself(
    several: Detector, footage: list[Clip]
) -> None:
    with pytest.raises(ConfigError, match="densities: expected a detector with several views"):
        with_density(several.parts[0], "knn", footage)
    assert with_density(several, "step", footage) is several
