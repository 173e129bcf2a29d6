"""What each view shows of a window, and the usual pace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.config import Config, Reference
from stepvad.errors import ConfigError, DataError
from stepvad.model.footage import Footage
from stepvad.poses import Clip, Track
from stepvad.skeletons import of_size
from stepvad.stream import Stream
from stepvad.windows import runs
from stepvad.windows.runs import cut, cut_in_pieces
from stepvad.windows.views import Pace, ViewSettings, Windows
from tests.tracks import several, that_cuts
from tests.windows.test_sampling import V, wandering

SEVERAL = (
    Config(T=6, K=2, clock=True, fps=10.0),
    Config(T=2, K=2, clock=True, fps=10.0),
    Config(T=4, K=2, clock=True, fps=10.0, view="motion", least=3),
)


def crossing(velocity: tuple[float, float], size: float = 1.0, n: int = 8) -> Clip:
    """A triangle, 30 pixels high, that crosses the picture."""
    corners = size * np.array([[0.0, 0.0], [20.0, 0.0], [10.0, 30.0]])
    path = np.multiply.outer(np.arange(n), velocity)
    keypoints = (100 + corners + path[:, None]).astype(np.float32)
    track = Track(1, np.arange(n), keypoints, np.ones((n, V), np.float32))
    return Clip("crossing", 10.0, n, (track,), of_size(V))


def seen(clip: Clip, view: str, T: int = 8) -> NDArray[np.float32]:
    """The numbers of a clip's first window, pair by pair."""
    config = Config(T=T, K=2, view=view)  # type: ignore[arg-type]  # Config checks
    x = cut(clip, [ViewSettings(config)], of_size(V))[0].windows(slice(None)).x
    return np.asarray(x[0, :, :, 0].T)


def test_motion_is_in_sizes_of_the_body() -> None:
    size = float(np.sqrt(np.square([10.0, 10.0, 0.0]).mean() + np.square([10, 10, 20]).mean()))
    velocity, (growth, wide) = seen(crossing((3.0, -1.0)), "motion")
    np.testing.assert_allclose(velocity, [3 / size, -1 / size], rtol=1e-5)
    assert growth == pytest.approx(0, abs=1e-6)
    assert wide == pytest.approx(np.sqrt(200 / 3) / size, rel=1e-5)
    np.testing.assert_allclose(  # half as far away: twice as large and twice as fast
        seen(crossing((6.0, -2.0), size=2.0), "motion"), [velocity, [growth, wide]],
        atol=1e-5,
    )  # fmt: skip


def test_growth_has_its_sign() -> None:
    clip = crossing((0.0, 0.0))
    (track,) = clip.tracks
    grows = track.keypoints * np.geomspace(1, 2, 8, dtype=np.float32)[:, None, None]
    grown = Clip("x", 10.0, 8, (replace(track, keypoints=grows),), of_size(V))
    assert seen(grown, "motion")[1, 0] == pytest.approx(np.log(2) / 7, rel=1e-4)


def test_a_young_window_moves_as_fast_as_the_poses_at_hand() -> None:
    config = Config(T=8, K=2, view="motion", least=3)
    windows = cut(crossing((3.0, -1.0)), [ViewSettings(config)], of_size(V))[0].windows(slice(None))
    assert windows.ages(config).tolist() == [3, 4, 5, 6, 7, 8]
    np.testing.assert_allclose(
        windows.x, np.broadcast_to(windows.x[-1:], windows.x.shape), atol=1e-5
    )


def test_place_is_where_the_feet_are_and_how_large_the_body_is() -> None:
    (x, y), (size, _) = seen(crossing((0.0, 0.0)), "place")
    assert (x, y) == (pytest.approx(110), pytest.approx(130))
    (far_x, far_y), (far, _) = seen(crossing((0.0, 0.0), size=0.5), "place")
    assert (far_x, far_y) == (pytest.approx(105), pytest.approx(115))
    assert size - far == pytest.approx(np.log(2), rel=1e-4)


@pytest.mark.parametrize("fps", [4.0, 10.0, 12.0, 30.0])
def test_young_tracks_have_the_same_windows_everywhere(
    fps: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip = wandering(70, seed=5, fps=fps, missed=0.25)
    index, counts = cut(clip, several(SEVERAL), of_size(V))
    whole = index.windows(slice(None))
    stream = Stream(that_cuts(SEVERAL, of_size(V)), skeleton=of_size(V), fps=fps)
    online = [stream.push(frame, poses) for frame, poses in clip.by_frame()]
    monkeypatch.setattr(runs, "PIECE", 9)
    pieces = list(cut_in_pieces(clip, several(SEVERAL), of_size(V)))
    short = sum((mended for _, mended in pieces[1:]), pieces[0][1]).short_runs
    assert short == counts.short_runs
    for found in (online, [piece.windows(slice(None)) for piece, _ in pieces]):
        for number in range(3):
            assert bits(found, number) == bits([whole], number)
        confidence = np.concatenate([part.c for part in found])
        assert confidence.tobytes() == whole.c.tobytes()  # a young track repeats its first pose
    young, old = len(whole.views[1].rows), len(whole.views[0].rows)
    assert len(whole) == young > old > 0


@pytest.mark.parametrize("number", range(3))
def test_a_view_sees_the_latest_poses(number: int) -> None:
    clip = wandering(20)
    view = SEVERAL[number]
    whole = cut(clip, several(SEVERAL), of_size(V))[0].windows(slice(None))
    own = whole.views[number].windows
    alone = cut(clip, [ViewSettings(view)], of_size(V))[0].windows(slice(None))
    assert own.frame.tolist() == alone.frame.tolist() == [*range(view.shortest - 1, 20)]
    assert own.x.tobytes() == alone.x.tobytes()
    assert own.c.tobytes() == alone.c.tobytes()


def bits(parts: list[Windows], view: int) -> tuple[bytes, ...]:
    """Frames, numbers and confidences of a view's windows in all parts."""
    windows = [part.views[view].windows for part in parts]
    return tuple(
        np.concatenate([getattr(one, name) for one in windows]).tobytes()
        for name in ("frame", "x", "c")
    )


def test_a_part_of_the_windows_keeps_its_views() -> None:
    whole = cut(wandering(20), several(SEVERAL), of_size(V))[0].windows(slice(None))
    rows = np.array([0, 3, 4, 9])
    part = whole.part(rows)
    assert part.views[0].rows.tolist() == [2, 3]  # the first window of six poses ends in frame 5
    assert part.views[0].windows.frame.tolist() == [5, 10]
    assert part.views[1].windows.frame.tolist() == whole.frame[rows].tolist()


def test_windows_and_settings_must_agree_on_views() -> None:
    windows = cut(wandering(20), several(SEVERAL), of_size(V))[0].windows(slice(None))
    windows.expect(several(SEVERAL), of_size(V))
    with pytest.raises(DataError, match="expected 0 views, got 3"):
        windows.expect([ViewSettings(Config(T=6, K=2))], of_size(V))


def test_views_last_a_second_and_a_third_of_one() -> None:
    views = Config.usual(24.0, ("pose", "motion", "place"))
    assert [(view.view, view.T) for view in views] == [
        ("pose", 24), ("pose", 8), ("motion", 24), ("place", 8),
    ]  # fmt: skip
    assert [view.shortest for view in views] == [8, 2, 8, 8]
    assert {view.scored_by for view in views} == {"usual"}
    assert [view.view for view in Config.usual(24.0)] == ["pose", "pose", "motion"]
    at_50, at_10 = (Config.usual(fps, ("pose",)) for fps in (50.0, 10.0))
    assert [view.T for view in at_50] == [50, 17]
    assert [view.T for view in at_10] == [24, 8], "fewer poses are too noisy"
    with pytest.raises(ConfigError, match="expected pose, optionally with motion or place"):
        Config.usual(24.0, ("motion",))


def test_smoothing_takes_jitter_from_shapes_and_leaves_places() -> None:
    clip = crossing((3.0, -1.0))
    (track,) = clip.tracks
    noise = np.random.default_rng(0).normal(0, 2, track.keypoints.shape).astype(np.float32)
    shaken = replace(clip, tracks=(replace(track, keypoints=track.keypoints + noise),))
    plain, smooth = Config(T=8, K=2), Config(T=8, K=2, reference=Reference(smooth=0.6))

    def x(of: Clip, config: Config) -> NDArray[np.float32]:
        return cut(of, [ViewSettings(config)], of_size(V))[0].windows(slice(None)).x[0]

    np.testing.assert_allclose(x(clip, smooth), x(clip, plain), atol=1e-5)
    off = [np.abs(x(shaken, one) - x(clip, one))[:, :, 2:].mean() for one in (smooth, plain)]
    assert off[0] < 0.8 * off[1]
    path = [x(shaken, one).mean(axis=1) for one in (smooth, plain)]
    np.testing.assert_allclose(np.diff(path[0]), np.diff(path[1]), atol=0.02)


MOTION = Config(T=8, K=2, view="motion")


def strolling(n: int = 100_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Feet, sizes and velocities of people who walk twice as fast in the lower half."""
    rng = np.random.default_rng(0)
    feet, size = rng.uniform(0, 480, n), rng.uniform(2, 4, n)
    velocity = rng.normal(size=(n, 2)) * [0.2, 0.05]
    velocity[feet > 240] *= 2
    return feet, size, velocity


def test_the_pace_of_a_place_is_that_of_the_people_who_move_there() -> None:
    pace = Pace.measure(*strolling())
    above, below = pace.at(np.array([40.0, 440.0]), np.array([3.0, 3.0]))
    assert below / above == pytest.approx([2.0, 2.0], rel=0.2)
    assert above[0] / above[1] == pytest.approx(4.0, rel=0.2)


def test_the_pace_changes_steadily_and_not_beyond_the_last_place() -> None:
    pace = Pace.measure(*strolling())
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
    pace = Pace.measure(feet[few], size[few], velocity[few])
    lowest = pace.at(np.array([460.0]), np.array([3.0]))[0, 0]
    assert lowest < 3 * pace.at(np.array([40.0]), np.array([3.0]))[0, 0]


def test_motion_is_told_in_what_is_usual_at_the_place() -> None:
    clip = crossing((3.0, -1.0))
    plain = cut(clip, [ViewSettings(MOTION)], of_size(V))[0].windows(slice(None)).x[0, :, :, 0].T
    pace = Pace(np.zeros(1), np.zeros(1), np.array([[[0.5, 0.25]]]))
    told = (
        cut(clip, [ViewSettings(MOTION, pace=pace)], of_size(V))[0]
        .windows(slice(None))
        .x[0, :, :, 0]
        .T
    )
    np.testing.assert_allclose(told[0], plain[0] / [0.5, 0.25], rtol=1e-6)
    np.testing.assert_array_equal(told[1], plain[1])


def test_a_fit_measures_the_pace_of_its_footage() -> None:
    rng = np.random.default_rng(0)
    clips = [crossing((float(rng.normal(0, 6)), float(rng.normal(0, 2)))) for _ in range(40)]
    footage = Footage.from_clips(clips, [ViewSettings(MOTION)])
    pace = footage.view.pace
    assert pace is not None
    across, down = pace.at(np.array([130.0]), np.array([np.log(15.0)]))[0]
    assert 2 < across / down < 5
    assert Footage.from_clips(clips, [footage.view]).view.pace is pace
    assert (
        Footage.from_clips(clips, [ViewSettings(replace(MOTION, view="place"))]).view.pace is None
    )
