from __future__ import annotations

import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.errors import DataError, MissingExtraError
from stepvad.poses import Clip, Track
from stepvad.video.overlay import (
    LEAST_RED,
    Overlay,
    canvas_size,
    check_size,
    check_video,
    highest_moments,
    pictures,
    scale_of,
)
from stepvad.video.source import Image, VideoFile
from stepvad.video.timeline import (
    RAMP,
    TRACKS,
    UNSCORED,
    Colour,
    ColourScale,
    ShownFrames,
    chip,
    ink_on,
    ramp,
    track_colours,
)
from tests.video.clips import STEP, write_video
from tests.video.scored import LEFT_WRIST, N_FRAMES, SIZE, T, clip, scored, track

cv2 = pytest.importorskip("cv2")
av = pytest.importorskip("av")

SCALE = ColourScale(4.0, "the threshold")
LEFT, RIGHT = (120.0, 120.0), (340.0, 120.0)
LATE = N_FRAMES - 1


def overlay_of(footage: Clip, *scores: float | NDArray[np.floating[Any]]) -> Overlay:
    by_id = {person.id: score for person, score in zip(footage.tracks, scores, strict=True)}
    made = scored(footage, by_id)
    return Overlay(
        footage, made, ShownFrames(range(footage.n_frames), 10.0), size=SIZE, scale=SCALE
    )


def colour_of(track_id: int) -> Colour:
    return TRACKS[track_id % len(TRACKS)]


def wrist(picture: Image, nose: tuple[float, float]) -> Colour:
    x, y = (round(a + b) for a, b in zip(nose, LEFT_WRIST, strict=True))
    red, green, blue = picture[y, x].tolist()
    return red, green, blue


def places(picture: Image, plate: Image) -> NDArray[np.int64]:
    """Where a plate stands in a picture, whole, as rows of (y, x)."""
    high, wide = plate.shape[:2]
    near = np.argwhere(cv2.matchTemplate(picture, plate, cv2.TM_SQDIFF) < 1e5)
    same = [np.array_equal(picture[y : y + high, x : x + wide], plate) for y, x in near]
    return near[np.array(same, np.bool_)]


def luminance(colour: Colour) -> float:
    linear = (np.array(colour) / 255) ** 2.2
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_joints_are_green_at_the_mean_of_training_and_red_at_the_threshold() -> None:
    overlay = overlay_of(clip(track(1, LEFT), track(2, RIGHT)), 0.0, 4.0)
    picture = overlay.draw(LATE)
    assert wrist(picture, LEFT) == RAMP[0]
    assert wrist(picture, RIGHT) == RAMP[-1]
    (red, green, blue), alarm = RAMP[0], RAMP[-1]
    assert green > red
    assert green > blue
    assert alarm[0] > 3 * max(alarm[1:])


def test_scores_beyond_both_ends_have_the_colours_of_the_ends() -> None:
    picture = overlay_of(clip(track(1, LEFT), track(2, RIGHT)), -9.0, 400.0).draw(LATE)
    assert wrist(picture, LEFT) == RAMP[0]
    assert wrist(picture, RIGHT) == RAMP[-1]
    assert ramp(0.5) not in RAMP


def test_who_has_no_score_yet_is_grey_and_has_no_numbers() -> None:
    overlay = overlay_of(clip(track(1, LEFT)), 4.0)
    early, first = overlay.draw(T - 2), overlay.draw(T - 1)
    plate = chip("4.0", 18, RAMP[-1], ink_on(RAMP[-1]), 3, colour_of(1))
    assert wrist(early, LEFT) == UNSCORED
    assert wrist(first, LEFT) == RAMP[-1]
    assert len(places(early, plate)) == 0
    assert len(places(first, plate)) == 1


def test_green_to_red_can_be_told_by_every_eye() -> None:
    # Machado et al. 2009, severity 1, on linear colours
    protan = [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]
    deutan = [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]
    steps = [luminance(ramp(level)) for level in np.linspace(0, 1, 20)]
    assert all(later < earlier for earlier, later in pairwise(steps))
    assert steps[0] > 3 * steps[-1]
    for eye in (protan, deutan):
        ends = [np.array(eye) @ (np.array(colour) / 255) ** 2.2 for colour in (RAMP[0], RAMP[-1])]
        assert np.linalg.norm(ends[0] - ends[1]) > 0.6


def test_a_box_keeps_the_colour_of_its_track() -> None:
    tracks = track(7, LEFT), track(8, RIGHT, range(10, 30))
    overlay = overlay_of(clip(*tracks), 0.0, np.linspace(-1, 9, 17, dtype=np.float32))
    for frame in range(N_FRAMES):
        picture = overlay.draw(frame)
        assert edge(picture, LEFT) == colour_of(7), frame
        assert (edge(picture, RIGHT) == colour_of(8)) == (10 <= frame < 30), frame
    assert colour_of(7) != colour_of(8)


def edge(picture: Image, nose: tuple[float, float]) -> Colour:
    """The colour most to the left on the height of the hips."""
    row = picture[round(nose[1]) + 64, round(nose[0]) - 60 : round(nose[0])]
    coloured = row[row.max(axis=1) > 30]
    red, green, blue = coloured[0].tolist() if len(coloured) else (0, 0, 0)
    return red, green, blue


def test_people_seen_together_differ_in_colour_and_others_go_by_id() -> None:
    tracks = [track(8 * at, LEFT, range(at, 20)) for at in range(len(TRACKS))]  # all of one colour
    assert sorted(track_colours(tracks).values()) == sorted(TRACKS)
    crowd = [track(at, LEFT) for at in range(3 * len(TRACKS))]
    assert {*track_colours(crowd).values()} == {*TRACKS}
    alone = [track(-5, LEFT, range(10)), track(3, LEFT, range(10, 20)), track(9, LEFT, range(0))]
    assert track_colours(alone) == {-5: TRACKS[3], 3: TRACKS[3]}


def test_colours_of_tracks_are_neither_green_nor_red() -> None:
    for colour in TRACKS:
        assert min(sum(abs(np.subtract(colour, end))) for end in (RAMP[0], RAMP[-1])) > 100


def test_confidence_stands_above_the_box_and_the_score_below() -> None:
    picture = overlay_of(clip(track(3, LEFT)), 2.0).draw(LATE)
    own, middle = colour_of(3), ramp(0.5)
    ((above, left),) = places(picture, chip("0.75", 18, own, ink_on(own), 3, own))
    ((below, _),) = places(picture, chip("2.0", 18, middle, ink_on(middle), 3, own))
    assert above + 18 <= LEFT[1] - 3
    assert below >= LEFT[1] + 120
    assert abs(left + 20 - LEFT[0]) < 10


def test_numbers_in_a_crowd_do_not_cover_each_other() -> None:
    noses = [(150.0 + 9 * at, 150.0 + 2 * at) for at in range(4)]
    people = [track(at, nose) for at, nose in enumerate(noses)]
    picture = overlay_of(clip(*people), 1.0, 2.0, 3.0, 4.0).draw(LATE)
    for at in range(4):
        paper = ramp((at + 1) / 4)
        plate = chip(f"{at + 1:.1f}", 18, paper, ink_on(paper), 3, colour_of(at))
        assert len(places(picture, plate)) == 1, at
        own = colour_of(at)
        assert len(places(picture, chip("0.75", 18, own, ink_on(own), 3, own))) == 1, at


def test_numbers_at_the_edges_stay_inside_the_frame() -> None:
    people = track(1, (4.0, 2.0)), track(2, (476.0, 245.0))
    picture = overlay_of(clip(*people), 4.0, 4.0).draw(LATE)[: SIZE[1]]
    for track_id in (1, 2):
        own = colour_of(track_id)
        assert len(places(picture, chip("0.75", 18, own, ink_on(own), 3, own))) == 1
        red = chip("4.0", 18, RAMP[-1], ink_on(RAMP[-1]), 3, own)
        assert len(places(picture, red)) == 1


def test_joints_that_are_guesses_are_not_drawn() -> None:
    person = track(1, LEFT)
    keypoints, sure = person.keypoints.copy(), person.confidence.copy()
    keypoints[:, 9], sure[:, 9] = 0.0, 0.0  # the left wrist, lost
    sure[:, 10] = np.nan
    footage = clip(Track(1, person.frames, keypoints, sure))
    picture = overlay_of(footage, 4.0).draw(LATE)
    assert not picture[:90, :90].any()
    assert not (picture[150:200, :200] == RAMP[-1]).all(axis=2)[:, :98].any()
    assert (picture[150:200, :200] == RAMP[-1]).all(axis=2).any()


def test_a_person_without_any_sure_joint_has_a_box_all_the_same() -> None:
    person = track(1, LEFT)
    footage = clip(Track(1, person.frames, person.keypoints, np.zeros_like(person.confidence)))
    picture = overlay_of(footage, 0.0).draw(LATE)
    assert edge(picture, LEFT) == colour_of(1)


def test_joints_far_outside_of_the_picture_do_no_harm() -> None:
    footage = clip(track(1, (1e6, -1e6)), track(2, LEFT))
    picture = overlay_of(footage, 4.0, 4.0).draw(LATE)
    assert wrist(picture, LEFT) == RAMP[-1]


def test_on_black_everything_but_people_is_black() -> None:
    picture = overlay_of(clip(track(1, LEFT)), 4.0).draw(LATE)
    stage = picture[: SIZE[1]].copy()
    stage[70:280, 75:165] = 0
    assert not stage.any()


def test_on_a_video_its_frames_show_by_number(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", size=SIZE, n_frames=N_FRAMES // 2)
    video = VideoFile(path)
    footage = clip(track(1, LEFT, range(20)), n_frames=20)
    overlay = overlay_of(footage, 4.0)
    drawn = {frame: picture.copy() for frame, picture in pictures(overlay, range(5, 15), video)}
    assert sorted(drawn) == list(range(5, 15))
    for frame, picture in drawn.items():
        assert picture[5:60, 5:60].mean() == pytest.approx(frame * STEP, abs=4)
        assert wrist(picture, LEFT) == RAMP[-1]
    for _, picture in pictures(overlay, range(5, 15)):
        assert not picture[5:60, 5:60].any()


def test_a_video_that_ends_early_is_refused(tmp_path: Path) -> None:
    video = VideoFile(write_video(tmp_path / "a.mp4", size=SIZE, n_frames=5))
    overlay = overlay_of(clip(track(1, LEFT)), 4.0)
    with pytest.raises(DataError, match="expected a frame 9, got 5 frames that decode"):
        list(pictures(overlay, range(3, 10), video))


def test_a_frame_of_another_size_is_refused() -> None:
    overlay = overlay_of(clip(track(1, LEFT)), 4.0)
    with pytest.raises(DataError, match="expected 480x360 pixels as before, got 64x48"):
        overlay.check_image(np.zeros((48, 64, 3), np.uint8), 7)


def test_a_video_that_poses_cannot_be_of_is_refused(tmp_path: Path) -> None:
    short = VideoFile(write_video(tmp_path / "short.mp4", size=SIZE, n_frames=12))
    footage = clip(track(1, LEFT, range(30)), track(2, RIGHT, range(30)), n_frames=30)
    with pytest.raises(DataError, match="expected the 30 frames that clip yard has, got 12"):
        check_video(footage, short, SIZE)
    small = VideoFile(write_video(tmp_path / "small.mp4", size=(240, 180), n_frames=30))
    with pytest.raises(DataError, match=r"which go to \(364, 240\), got 240x180 pixels"):
        check_video(footage, small, (240, 180))
    check_video(footage, small, SIZE)


def test_red_is_the_threshold_or_what_few_windows_of_the_clip_reach() -> None:
    footage = clip(track(1, LEFT, range(2000)), n_frames=2000)
    values = np.linspace(0, 20, 1997, dtype=np.float32)
    wild, calm = scored(footage, {1: values}), scored(footage, {1: values / 100})
    assert scale_of(wild, 5.0).red == 5.0
    assert scale_of(wild).red == pytest.approx(np.quantile(values, 0.999))
    assert "99.9 %" in scale_of(wild).meaning
    assert scale_of(calm).red == LEAST_RED
    assert scale_of(scored(clip(track(1, LEFT, range(2))), {1: 0.0})).red == LEAST_RED


def test_the_black_picture_holds_every_joint() -> None:
    assert canvas_size(clip(track(1, LEFT), track(2, (900.0, 500.0)))) == (952, 639)
    assert canvas_size(clip(track(1, (20.0, 20.0)))) == (320, 320)
    with pytest.raises(DataError, match="got 51525x320"):
        canvas_size(clip(track(1, (50_000.0, 20.0))))
    with pytest.raises(DataError, match="got 100x900"):
        check_size((100, 900), "--size")


def test_the_highest_moments_are_apart_and_in_order_of_height() -> None:
    scores = np.array([np.nan, 1, 9, 8, 7, 0, 3, 2, np.nan, 5], np.float32)
    assert highest_moments(scores, 3, 3) == [2, 9, 6]
    assert highest_moments(scores, 1, 3) == [2]
    assert highest_moments(scores, 99, 1) == [2, 3, 4, 9, 6, 7, 1, 5]
    assert highest_moments(np.full(4, np.nan, np.float32), 2, 1) == []
    assert np.nanmax(scores) == 9  # the caller's scores are left alone


def test_the_highest_score_of_a_frame_is_of_somebody_in_it() -> None:
    whole, rows = track(1, LEFT), [*range(10), *range(12, 40)]
    gap = Track(1, whole.frames[rows], whole.keypoints[rows], whole.confidence[rows])
    made = scored(clip(track(1, LEFT), track(2, RIGHT)), {1: 3.0, 2: np.arange(37.0)})
    cast = Overlay(
        clip(gap, track(2, RIGHT)), made, ShownFrames(range(40), 10.0), size=SIZE, scale=SCALE
    ).cast
    assert np.isnan(cast.highest()[: T - 1]).all()
    assert cast.highest()[T - 1 : 12].tolist() == [3, 3, 3, 3, 4, 5, 6, 7, 8]
    assert [person.track_id for person in cast.people(10)] == [2]
    assert [person.score for person in cast.people(12)] == [3.0, 9.0]


def test_a_long_clip_takes_no_more_memory_than_a_short_one() -> None:
    overlay = overlay_of(clip(track(1, LEFT, range(400)), n_frames=400), 4.0)
    tracemalloc.start()
    short, long = (peak_of(overlay, frames) for frames in (range(20), range(400)))
    tracemalloc.stop()
    assert long - short < 0.5 * overlay.empty_picture().nbytes  # of 380 more


def peak_of(overlay: Overlay, frames: range) -> int:
    tracemalloc.reset_peak()
    for _ in pictures(overlay, frames):
        pass
    return tracemalloc.get_traced_memory()[1]


def test_without_opencv_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingExtraError, match="overlay needs the video extra"):
        overlay_of(clip(track(1, LEFT)), 4.0)
