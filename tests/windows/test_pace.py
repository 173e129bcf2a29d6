"""How fast people usually move at each place, and motion in terms of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stepvad.config import Config
from stepvad.errors import ConfigError
from stepvad.model.footage import Footage
from stepvad.skeletons import of_size
from stepvad.windows import cut
from stepvad.windows.pace import Pace
from tests.windows.test_sampling import V
from tests.windows.test_views import crossing

MOTION = Config(T=8, K=2, view="motion")


def strolling(n: int = 100_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Feet, sizes and velocities of people who walk twice as fast in the lower half."""
    rng = np.random.default_rng(0)
    feet, size = rng.uniform(0, 480, n), rng.uniform(2, 4, n)
    velocity = rng.normal(size=(n, 2)) * [0.2, 0.05]
    velocity[feet > 240] *= 2
    return feet, size, velocity


def test_the_pace_of_a_place_is_that_of_the_people_who_move_there() -> None:
    pace = Pace.measured(*strolling())
    above, below = pace.at(np.array([40.0, 440.0]), np.array([3.0, 3.0]))
    assert below / above == pytest.approx([2.0, 2.0], rel=0.2)
    assert above[0] / above[1] == pytest.approx(4.0, rel=0.2)


def test_the_pace_changes_steadily_and_not_beyond_the_last_place() -> None:
    pace = Pace.measured(*strolling())
    feet = np.linspace(-500, 1000, 3001)
    along_x = pace.at(feet, np.full(len(feet), 3.0))[:, 0]
    assert np.abs(np.diff(along_x)).max() < 0.01 * np.ptp(along_x)
    assert along_x[0] == along_x[500]
    assert along_x[-1] == along_x[2500]
    one = pace.at(feet[1700:1701], np.array([3.0]))
    assert one[0, 0] == along_x[1700], "any batching gives the same bits"


def test_few_people_at_a_place_move_as_people_do() -> None:
    feet, size, velocity = strolling()
    few = np.r_[np.flatnonzero(feet <= 400), np.flatnonzero(feet > 400)[:20]]
    velocity[feet > 400] *= 50
    pace = Pace.measured(feet[few], size[few], velocity[few])
    lowest = pace.at(np.array([460.0]), np.array([3.0]))[0, 0]
    assert lowest < 3 * pace.at(np.array([40.0]), np.array([3.0]))[0, 0]


def test_numbers_describe_it_whole() -> None:
    pace = Pace.measured(*strolling())
    again = Pace.of(pace.numbers)
    for own, other in zip(
        (pace.feet, pace.size, pace.speed), (again.feet, again.size, again.speed), strict=True
    ):
        np.testing.assert_allclose(own, other, atol=1e-6)
    assert again.numbers == pace.numbers


@pytest.mark.parametrize("numbers", [(1.0,), (1.0,) * 5, (2.0, 1.0, 0.0, 1.0, *[1.0] * 8)])
def test_other_numbers_are_refused(numbers: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="pace"):
        Pace.of(numbers)


def test_a_speed_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        Pace.of((0.0, 0.0, 0.0, 1.0))


def test_only_a_motion_has_a_pace() -> None:
    with pytest.raises(ConfigError, match="pace"):
        Config(pace=(0.0, 0.0, 1.0, 1.0))


def test_motion_is_told_in_what_is_usual_at_the_place() -> None:
    clip = crossing((3.0, -1.0))
    plain = cut(clip, MOTION, of_size(V))[0].windows(slice(None)).x[0, :, :, 0].T
    paced = replace(MOTION, pace=(0.0, 0.0, 0.5, 0.25))
    told = cut(clip, paced, of_size(V))[0].windows(slice(None)).x[0, :, :, 0].T
    np.testing.assert_allclose(told[0], plain[0] / [0.5, 0.25], rtol=1e-6)
    np.testing.assert_array_equal(told[1], plain[1])


def test_a_fit_measures_the_pace_of_its_footage() -> None:
    rng = np.random.default_rng(0)
    clips = [crossing((float(rng.normal(0, 6)), float(rng.normal(0, 2)))) for _ in range(40)]
    footage = Footage.read(clips, MOTION)
    pace = Pace.of(footage.config.pace)
    across, down = pace.at(np.array([130.0]), np.array([np.log(15.0)]))[0]
    assert 2 < across / down < 5
    again = Footage.read(clips, footage.config)
    assert again.config.pace == footage.config.pace
    assert Footage.read(clips, replace(MOTION, view="place")).config.pace == ()
