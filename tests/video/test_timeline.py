from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.errors import StepvadError
from stepvad.video import overlay
from stepvad.video.overlay import recording, write_png
from stepvad.video.source import Image
from stepvad.video.timeline import (
    LIGHT,
    PAPER,
    RAMP,
    TRUTH,
    ColourScale,
    ShownFrames,
    Spot,
    Timeline,
    clock,
    track_colours,
)
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


av = pytest.importorskip("av")
cv2 = pytest.importorskip("cv2")


def picture(number: int) -> Image:
    image = np.zeros((48, 64, 3), np.uint8)
    image[:, :32], image[:, 32:] = RAMP[0], RAMP[-1]
    image[:8] = 8 * number
    return image


def write(path: Path, n_frames: int = 20, fps: float = 12.5) -> Path:
    with recording(path, (64, 48), fps) as record:
        for number in range(n_frames):
            record(picture(number))
    return path


def boxes(path: Path) -> list[bytes]:
    """The parts of an MP4, in order."""
    data, found, at = path.read_bytes(), [], 0
    while at < len(data):
        found.append(data[at + 4 : at + 8])
        at += int.from_bytes(data[at : at + 4], "big")
    return found


def test_a_video_is_what_browsers_play(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp4")
    order = boxes(path)
    assert order.index(b"moov") < order.index(b"mdat")
    with av.open(str(path)) as container:
        stream: Any = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.pix_fmt == "yuv420p"
        assert (stream.width, stream.height) == (64, 48)
        assert stream.average_rate == Fraction(25, 2)
        frames = list(container.decode(video=0))
    assert len(frames) == 20
    assert np.allclose(np.diff([frame.time for frame in frames]), 0.08)


def test_colours_come_back_and_say_how_they_are_stored(tmp_path: Path) -> None:
    with av.open(str(write(tmp_path / "a.mp4"))) as container:
        frames: list[Any] = list(container.decode(video=0))
    assert {int(frame.colorspace) for frame in frames} == {overlay.BT709}
    for number, frame in enumerate(frames):
        # PyAV 16 reads the stored colour space only if both are given
        shown = frame.reformat(format="rgb24", src_colorspace="ITU709", dst_colorspace="DEFAULT")
        image = shown.to_ndarray().astype(int)
        assert np.abs(image[16:, 4:28] - RAMP[0]).max() < 12
        assert np.abs(image[16:, 36:60] - RAMP[-1]).max() < 12
        assert abs(image[:6].mean() - 8 * number) < 6


@pytest.mark.parametrize(
    ("fps", "rate"),
    [(30000 / 1001, Fraction(30000, 1001)), (10, Fraction(10)), (0.5, Fraction(1, 2))],
)
def test_frame_rates_are_kept_exactly(tmp_path: Path, fps: float, rate: Fraction) -> None:
    with av.open(str(write(tmp_path / "a.mp4", 5, fps))) as container:
        assert container.streams.video[0].average_rate == rate


def begin_and_stop(path: Path, stop: type[BaseException]) -> None:
    with recording(path, (64, 48), 10.0) as record:
        record(picture(1))
        raise stop


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
def test_what_is_stopped_leaves_no_file_and_keeps_the_old_one(
    tmp_path: Path, stop: type[BaseException]
) -> None:
    (tmp_path / "a.mp4").write_bytes(b"old")
    with pytest.raises(stop):
        begin_and_stop(tmp_path / "a.mp4", stop)
    assert [file.name for file in tmp_path.iterdir()] == ["a.mp4"]
    assert (tmp_path / "a.mp4").read_bytes() == b"old"


def test_without_an_encoder_the_remedy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "ENCODER", "libnothing")
    with (
        pytest.raises(StepvadError, match="expected PyAV with the encoder libnothing") as failed,
        recording(tmp_path / "a.mp4", (64, 48), 10.0),
    ):
        pass
    assert "only-binary" in failed.value.hint
    assert not list(tmp_path.iterdir())


def test_a_png_has_the_colours_drawn(tmp_path: Path) -> None:
    write_png(picture(3), tmp_path / "a.png")
    back = cv2.imread(str(tmp_path / "a.png"))[..., ::-1]
    np.testing.assert_array_equal(back, picture(3))
    with pytest.raises(StepvadError, match="can be written"):
        write_png(picture(3), tmp_path / "no" / "a.png")
