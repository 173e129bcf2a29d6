from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.video.drawing import LIGHT, ColourScale, track_colours
from stepvad.video.pixels import Image
from stepvad.video.timeline import PAPER, TRUTH, ShownFrames, Spot, Timeline, clock
from tests.video.scored import N_FRAMES, T, clip, scored, track

pytest.importorskip("cv2")

SCALE = ColourScale(4.0, "the threshold")
WIDTH = 640
COLOURS = track_colours([track(number, (0.0, 0.0)) for number in range(2)])


def timeline(
    *scores: float | NDArray[np.float32],
    abnormal: NDArray[np.bool_] | None = None,
    name: str = "yard",
    width: int = WIDTH,
    frames: range = range(N_FRAMES),
) -> Timeline:
    footage = clip(*(track(number, (0.0, 0.0)) for number in range(len(scores))))
    windows = scored(footage, dict(enumerate(scores))).windows
    return Timeline(
        windows,
        ShownFrames(frames, 10.0, abnormal, name),
        SCALE,
        COLOURS,
        width=width,
        unit=1.0,
    )


def drawn(strip: Timeline, frame: int, spots: list[Spot] | None = None) -> Image:
    picture = np.zeros((strip.height, WIDTH, 3), np.uint8)
    strip.draw(picture, frame, spots or [])
    return picture


def cursor(picture: Image, strip: Timeline) -> list[int]:
    """Columns that are light from the top of the plot to its bottom."""
    rows = picture[strip.row(99) : strip.row(-99)]
    return np.flatnonzero((rows == LIGHT).all(axis=(0, 2))).tolist()


def test_the_cursor_moves_with_the_frames() -> None:
    strip = timeline(1.0)
    seen = [cursor(drawn(strip, frame), strip) for frame in (0, 10, 20, N_FRAMES - 1)]
    assert seen == [[strip.column(frame)] for frame in (0, 10, 20, N_FRAMES - 1)]
    gaps = np.diff([columns[0] for columns in seen])
    assert gaps.tolist() == pytest.approx([WIDTH / 4.4, WIDTH / 4.4, WIDTH / 2.3], rel=0.1)


def test_true_anomalies_are_shaded_and_nothing_else() -> None:
    abnormal = np.zeros(N_FRAMES, np.bool_)
    abnormal[10:20] = True
    strip = timeline(0.0, abnormal=abnormal)
    row = drawn(strip, 0)[strip.row(99)]
    for frame in range(1, N_FRAMES):
        expected = TRUTH if abnormal[frame] else PAPER
        assert tuple(row[strip.column(frame)].tolist()) == expected, frame
    assert not (drawn(timeline(0.0), 0) == TRUTH).all(axis=2).any()


def test_truth_outside_of_the_frames_shown_is_not_shaded() -> None:
    abnormal = np.zeros(N_FRAMES, np.bool_)
    abnormal[[2, 38]] = True
    strip = timeline(0.0, abnormal=abnormal, frames=range(10, 30))
    row = drawn(strip, 15)[strip.row(99)]
    assert not (row == TRUTH).all(axis=1).any()


def test_every_track_has_a_line_in_its_colour_where_it_has_scores() -> None:
    strip = timeline(1.0, 3.0)
    picture = drawn(strip, N_FRAMES - 1)
    for number, score in ((0, 1.0), (1, 3.0)):
        columns = np.flatnonzero(on_line(picture, strip.row(score), number))
        assert columns.min() == pytest.approx(strip.column(T - 1), abs=2)
        assert columns.max() == pytest.approx(strip.column(N_FRAMES - 1), abs=2)
        assert len(columns) > 0.95 * (columns.max() - columns.min())


def on_line(picture: Image, row: int, number: int) -> NDArray[np.bool_]:
    """In which columns a row shows the colour of a track, mixed with the paper alone."""
    colour = np.subtract(COLOURS[number], PAPER)
    seen = picture[row - 1 : row + 2].astype(float) - PAPER
    share = seen @ colour / (colour @ colour)
    other = np.linalg.norm(seen - share[..., None] * colour, axis=2)
    return np.asarray(((share > 0.3) & (other < 20)).any(axis=0))


def test_what_is_to_come_is_fainter_than_what_has_been() -> None:
    strip = timeline(3.0)
    picture, row = drawn(strip, 20), strip.row(3.0)
    before, after = picture[row, strip.column(12)], picture[row, strip.column(30)]
    assert before.max() > 1.5 * after.max()
    assert after.max() > 1.5 * max(PAPER)


def test_everybody_now_is_a_dot_on_the_cursor() -> None:
    strip = timeline(1.0, 3.0)
    picture = drawn(strip, 20, [Spot(0, 1.0), Spot(1, 3.0)])
    for number, score in ((0, 1.0), (1, 3.0)):
        assert tuple(picture[strip.row(score), strip.column(20)]) == COLOURS[number]


def test_scores_out_of_range_run_along_the_edges() -> None:
    strip = timeline(np.geomspace(1, 1e6, N_FRAMES - T + 1, dtype=np.float32))
    assert strip.row(1e6) == strip.row(1e9) > 0
    assert strip.row(4.0) - strip.row(1e6) > 20
    assert strip.row(-1e9) < strip.height
    assert timeline(2.0).row(4.0) < timeline(2.0).row(0.0) < timeline(2.0).row(-1.0)


def test_a_track_with_gaps_has_no_line_across_them() -> None:
    footage = clip(track(0, (0.0, 0.0)))
    windows = scored(footage, {0: 3.0}).windows
    keep = np.flatnonzero((windows.frame < 10) | (windows.frame == 20) | (windows.frame > 30))
    parts = type(windows)(
        windows.track_id[keep],
        windows.frame[keep],
        windows.c[keep],
        windows.E[keep],
        windows.A[keep],
    )
    strip = Timeline(
        parts, ShownFrames(range(N_FRAMES), 10.0), SCALE, COLOURS, width=WIDTH, unit=1.0
    )
    row = on_line(drawn(strip, N_FRAMES - 1), strip.row(3.0), 0)
    assert row[strip.column(8)]
    assert row[strip.column(20)]
    assert not row[strip.column(15)]
    assert not row[strip.column(25)]


@pytest.mark.parametrize("name", ["", "a" * 500, "Straße 7"])
def test_any_name_leaves_room_for_the_clock(name: str) -> None:
    abnormal = np.ones(N_FRAMES, np.bool_)
    bare = drawn(timeline(1.0, name="", abnormal=abnormal), 30)
    named = drawn(timeline(1.0, name=name, abnormal=abnormal), 30)
    np.testing.assert_array_equal(bare[:, : WIDTH // 2], named[:, : WIDTH // 2])
    assert (bare != named).any() == bool(name)


def test_times_read_as_on_a_clock() -> None:
    assert clock(3725.04, tenths=True) == "1:02:05.0"
    assert clock(59.96, tenths=True) == "1:00.0"
    assert clock(59.6, tenths=False) == "1:00"
    assert clock(7.0, tenths=False) == "0:07"


def test_one_frame_and_nobody_scored_can_be_drawn() -> None:
    footage = clip(track(0, (0.0, 0.0), range(2)))
    windows = scored(footage, {0: 1.0}).windows
    strip = Timeline(windows, ShownFrames(range(5, 6), 10.0), SCALE, COLOURS, width=WIDTH, unit=1.0)
    assert cursor(drawn(strip, 5), strip) == [strip.column(5)]
