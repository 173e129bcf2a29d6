"""People whom the detector loses are followed by their last pose, and nobody who is not there."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.people import NOBODY, Boxes, People, extents
from stepvad.tracker import LONGEST_GLITCH_S, LastGood, Tracker
from stepvad.video import extract as parts_module
from stepvad.video.extract import Extraction, ExtractionOptions, Parts, extract_file
from stepvad.video.following import (
    Follower,
    Moment,
    detect_and_recover,
    keep_to_own_body,
    on_neighbour,
)
from stepvad.video.source import Image, VideoFile
from tests.video.clips import write_images

FPS = 10
Pose = NDArray[np.float32]


def standing(x: float, y: float = 100.0, height: float = 80.0) -> Pose:
    """Joints of a person around a place, a third as wide as high."""
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 3), np.linspace(-1, 1, 6)), axis=2)
    return (grid.reshape(-1, 2)[:17] * [height / 6, height / 2] + [x, y]).astype(np.float32)


def lying(x: float, y: float = 100.0, height: float = 80.0) -> Pose:
    return np.asarray(standing(0, 0, height)[:, ::-1] + [x, y], np.float32)


@dataclass
class Scene:
    """An estimator that sees the people of a script; a picture's first pixel is its number."""

    people: list[list[Pose]]
    detected: list[list[int]]
    """Who of the people is detected, in every frame."""
    confidence: float = 0.4
    looked_in: list[int] = field(default_factory=list)
    """Number of boxes of every call of `estimate`."""

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        found = []
        for number in (int(image[0, 0, 0]) for image in images):
            poses = [self.people[number][at] for at in self.detected[number]]
            corners = [[*pose.min(axis=0), *pose.max(axis=0)] for pose in poses]
            found.append(Boxes(np.reshape(corners, (-1, 4)), np.full(len(poses), 0.8)))
        return found

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        self.looked_in.append(sum(len(some) for some in boxes))
        return [
            self._joints(int(image[0, 0, 0]), some)
            for image, some in zip(images, boxes, strict=True)
        ]

    def _joints(self, number: int, boxes: Boxes) -> People:
        """The person nearest to the middle of each box, unsure if none is inside."""
        keypoints = np.empty((len(boxes), 17, 2), np.float32)
        confidence = np.full((len(boxes), 17), 0.1, np.float32)
        for row, corners in enumerate(boxes.corners):
            middle = (corners[:2] + corners[2:]) / 2
            keypoints[row] = standing(*middle)
            inside = [
                pose
                for pose in self.people[number]
                if (corners[:2] <= pose.mean(axis=0)).all()
                and (pose.mean(axis=0) <= corners[2:]).all()
            ]
            if inside:
                keypoints[row] = min(inside, key=lambda p: np.linalg.norm(p.mean(axis=0) - middle))
                confidence[row] = self.confidence
        return People(boxes, keypoints, confidence)


def image(number: int) -> Image:
    return np.full((200, 300, 3), number, np.uint8)


def watched(scene: Scene, fps: float = FPS) -> list[People]:
    """The people of every frame, followed from frame to frame."""
    follower, found = Follower(), []
    for number in range(len(scene.people)):
        moment = Moment(number / fps)
        (people,) = detect_and_recover(scene, [image(number)], [follower.last_poses(moment)])
        follower.update(moment, people)
        found.append(people)
    return found


def counts(found: Sequence[People]) -> list[int]:
    return [len(people.select(people.certain(0.25))) for people in found]


def falling(n: int = 20, *, lost_from: int = 5) -> Scene:
    """A person who stands, then lies and is not detected any more."""
    poses = [[standing(150) if i < lost_from else lying(150, 125)] for i in range(n)]
    return Scene(poses, [[0] if i < lost_from else [] for i in range(n)])


def test_a_person_who_falls_is_followed() -> None:
    found = watched(falling())
    assert counts(found) == [1] * 20
    np.testing.assert_array_equal(found[-1].keypoints[0], lying(150, 125))
    assert [bool(people.boxes.followed[0]) for people in found] == [False] * 5 + [True] * 15


def test_a_person_who_bends_and_then_lies_stretched_is_followed() -> None:
    poses = [standing(150)] * 5 + [standing(150, 125, 35)] * 3 + [lying(150, 125)] * 6
    scene = Scene([[pose] for pose in poses], [[0]] * 8 + [[]] * 6)
    assert counts(watched(scene)) == [1] * 14


def test_a_followed_box_continues_a_track_even_after_a_pause_and_starts_none() -> None:
    people = watched(falling())[-1]
    low, high = people.boxes.corners[0, :2], people.boxes.corners[0, 2:]
    assert (low < people.keypoints[0]).all()
    assert (people.keypoints[0] < high).all()
    tracker, nobody = Tracker(), people.select(np.array([], np.int64))
    detected = People(
        Boxes(people.boxes.corners - 10, np.array([0.9])), people.keypoints, people.confidence
    )
    assert len(tracker.update(detected)) == 1
    for _ in range(5):
        tracker.update(nobody)
    assert [pose.track_id for pose in tracker.update(people)] == [1]
    fresh = Tracker()
    assert [fresh.update(some) for some in (nobody, people, people, people)] == [[]] * 4
    assert fresh.update(people) == []


def test_a_person_who_is_detected_costs_no_second_look() -> None:
    scene = Scene([[standing(100 + 4 * i)] for i in range(10)], [[0]] * 10)
    watched(scene)
    assert scene.looked_in == [1] * 10


def test_a_person_who_left_is_given_up_after_a_second() -> None:
    scene = Scene([[standing(150)] if i < 5 else [] for i in range(30)], [[0]] * 5 + [[]] * 25)
    assert counts(watched(scene)) == [1] * 5 + [0] * 25
    assert scene.looked_in[5:] == [0, 1] * 10 + [0] * 15


def test_a_person_hidden_for_less_than_a_second_is_found_again() -> None:
    hidden = range(5, 12)
    scene = Scene(
        [[] if i in hidden else [standing(150)] for i in range(20)], [[0]] * 5 + [[]] * 15
    )
    assert counts(watched(scene)) == [0 if i in hidden else 1 for i in range(20)]


def test_the_longer_a_person_is_unseen_the_wider_is_the_search() -> None:
    follower = Follower()
    (people,) = detect_and_recover(falling(), [image(0)], [NOBODY])
    for number in range(2):
        follower.update(Moment(number / FPS), people)
    widths = [
        float(np.diff(follower.last_poses(Moment(time_s)).corners[0, ::2])[0])
        for time_s in (0.1, 0.5, 0.9)
    ]
    np.testing.assert_allclose(widths, np.array([1, 1.2, 1.4]) * 80 / 3, rtol=1e-5)


@pytest.mark.parametrize(
    "other",
    [standing(150, 145), standing(150, height=25), standing(150, height=160)],
    ids=["elsewhere", "collapsed", "grown"],
)
def test_a_pose_that_is_no_continuation_is_not_taken(other: Pose) -> None:
    scene = Scene([[standing(150)] if i < 5 else [other] for i in range(8)], [[0]] * 5 + [[]] * 3)
    assert counts(watched(scene)) == [1] * 5 + [0] * 3


def test_somebody_else_who_is_detected_is_not_taken_for_the_lost_person() -> None:
    both, one = [standing(140), standing(160)], [standing(160)]
    scene = Scene([both if i < 5 else one for i in range(10)], [[0, 1]] * 5 + [[0]] * 5)
    found = watched(scene)
    assert counts(found) == [2] * 5 + [1] * 5
    assert not any(people.boxes.followed.any() for people in found)


def test_two_lost_people_are_not_both_followed_to_one() -> None:
    both, one = [standing(140), standing(160)], [standing(150)]
    scene = Scene([both if i < 5 else one for i in range(10)], [[0, 1]] * 5 + [[]] * 5)
    assert counts(watched(scene)) == [2] * 5 + [1] * 5


def test_a_second_pose_of_a_detected_person_is_not_taken() -> None:
    """Found as of somebody turned round, or with one joint elsewhere."""
    one = standing(150)
    stretched = one.copy()
    stretched[0, 0] += 60
    for second in (standing(153)[::-1], stretched):
        frames = [[standing(165), one]] * 5 + [[second, one]] * 5
        scene = Scene(frames, [[0, 1]] * 5 + [[1]] * 5)
        assert counts(watched(scene)) == [2] * 5 + [1] * 5
        assert sum(scene.looked_in[5:]) == 10


def test_an_unsure_detection_is_not_followed() -> None:
    scene = falling()
    scene.confidence = 0.24
    assert counts(watched(scene)) == [0] * 20
    assert scene.looked_in[5:] == [0] * 15


@pytest.mark.parametrize(("confidence", "seconds"), [(0.4, 20), (0.6, 30)])
def test_without_any_detection_only_a_sure_pose_is_followed_for_long(
    confidence: float, seconds: int
) -> None:
    scene = falling(31, lost_from=2)
    scene.confidence = confidence
    found = counts(watched(scene, fps=1))
    assert sum(found) == 2 + min(seconds, 29)


def test_a_detection_renews_the_time() -> None:
    scene = falling(40, lost_from=2)
    scene.detected[15] = [0]
    assert sum(counts(watched(scene, fps=1))) == 15 + 1 + 20


def test_who_was_detected_once_is_not_followed() -> None:
    scene = falling(10, lost_from=1)
    assert counts(watched(scene)) == [1] + [0] * 9


def test_nobody_is_followed_into_another_view_or_back_in_time() -> None:
    follower = Follower()
    (people,) = detect_and_recover(falling(), [image(0)], [NOBODY])
    for time_s in (4.9, 5.0):
        follower.update(Moment(time_s, (0, 64, 48)), people)
    assert len(follower.last_poses(Moment(5.5, (0, 64, 48)))) == 1
    assert len(follower.last_poses(Moment(5.5, (1, 64, 48)))) == 0
    assert len(follower.last_poses(Moment(4.5, (0, 64, 48)))) == 0
    follower.update(Moment(5.5, (1, 64, 48)), people.select(np.array([], np.int64)))
    assert len(follower.last_poses(Moment(5.6, (0, 64, 48)))) == 0


def test_images_of_several_sources_are_looked_at_together() -> None:
    scene = falling()
    alone = watched(scene)
    (first,) = detect_and_recover(scene, [image(0)], [NOBODY])
    follower = Follower()
    follower.update(Moment(0), first)
    follower.update(Moment(0.1), first)
    last = follower.last_poses(Moment(0.2))
    found = detect_and_recover(scene, [image(5), image(5), image(1)], [NOBODY, last, last])
    assert counts(found) == [0, 1, 1]
    np.testing.assert_array_equal(found[1].keypoints, alone[5].keypoints)


def extracted(
    path: Path, directory: Path, scene: Scene, stop_at: int | None = None
) -> Extraction | None:
    stop = threading.Event()
    options = ExtractionOptions(
        stop=stop, report=lambda progress: stop.set() if progress.done == stop_at else None
    )
    with Parts(directory, {}) as parts:
        return extract_file(VideoFile(path), scene, parts, options)


@pytest.mark.parametrize("stop_at", [3, 5, 8, 12, 19])
def test_a_stopped_extraction_follows_on_to_the_same_poses(
    stop_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it stops while a person is lost and will be found again."""
    monkeypatch.setattr(parts_module, "PART_FRAMES", 4)
    path = write_images(tmp_path / "a.mkv", np.stack([image(i) for i in range(20)]))
    scene = falling(20)
    scene.people[7:10] = [[], [], []]
    whole = extracted(path, tmp_path / "whole", scene)
    assert whole is not None
    assert extracted(path, tmp_path / "parts", scene, stop_at) is None
    resumed = extracted(path, tmp_path / "parts", scene)
    assert resumed is not None
    assert resumed.clip.digest() == whole.clip.digest()
    assert whole.summary.frames == 20


def test_a_track_goes_on_through_a_fall(tmp_path: Path) -> None:
    path = write_images(tmp_path / "a.mkv", np.stack([image(i) for i in range(20)]))
    tilted = [[standing(150, 100 + 3 * min(i, 10))] for i in range(20)]
    scene = Scene(tilted, [[0] if i < 5 else [] for i in range(20)])
    result = extracted(path, tmp_path / "parts", scene)
    assert result is not None
    (track,) = result.clip.tracks
    assert track.frames.tolist() == list(range(20))


SIZE = (240, 320)
"""Height and width of a picture."""


def people_with(boxes_of: Sequence[Pose], poses: Sequence[Pose], confidence: float = 0.5) -> People:
    """People with boxes around some poses, and joints of others."""
    boxes = Boxes(extents(np.stack(boxes_of)), np.full(len(poses), 0.8, np.float32))
    return People(boxes, np.stack(poses), np.full((len(poses), 17), confidence, np.float32))


@dataclass
class Greedy:
    """An estimator that takes the brightest person of a picture; the brightness marks the pose."""

    people: dict[int, Pose]
    detected: list[int] = field(default_factory=list)

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        corners = extents(np.stack([self.people[at] for at in self.detected]))
        return [Boxes(corners, np.full(len(corners), 0.8, np.float32)) for _ in images]

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        return [self._brightest(image, some) for image, some in zip(images, boxes, strict=True)]

    def _brightest(self, image: Image, boxes: Boxes) -> People:
        brightness = int(image.max())
        pose = self.people.get(brightness)
        keypoints = np.zeros((len(boxes), 17, 2), np.float32)
        confidence = np.full((len(boxes), 17), 0.1, np.float32)
        if pose is not None:
            places = np.argwhere(image[..., 0] == brightness)[0]
            keypoints[:], confidence[:] = pose - pose[0] + places[::-1], 0.6
        return People(boxes, keypoints, confidence)


def picture(people: dict[int, Pose]) -> Image:
    """A picture with one bright pixel at the first joint of every person."""
    image = np.zeros((*SIZE, 3), np.uint8)
    for brightness, pose in people.items():
        x, y = pose[0].round().astype(int)
        image[y, x] = brightness
    return image


def test_poses_on_their_own_bodies_stay() -> None:
    poses = [standing(60), standing(90), standing(200)]
    assert not on_neighbour(people_with(poses, poses)).any()
    nobody = people_with(poses, poses).select(np.zeros(3, np.bool_))
    assert on_neighbour(nobody).shape == (0,)


def test_the_pose_that_fits_its_box_less_is_the_borrowed_one() -> None:
    near, far = standing(60), standing(90)
    assert on_neighbour(people_with([near, far], [far, far])).tolist() == [True, False]
    assert on_neighbour(people_with([near, far], [near, near])).tolist() == [False, True]


def test_a_pose_outside_its_box_is_of_somebody_undetected() -> None:
    assert on_neighbour(people_with([standing(60)], [standing(150)])).tolist() == [True]


def test_unsure_poses_accuse_nobody() -> None:
    people = people_with([standing(60), standing(90)], [standing(60), standing(60)])
    people.confidence[1] = 0.1
    assert not on_neighbour(people).any()


@pytest.mark.parametrize("shown", [True, False], ids=["visible", "hidden"])
def test_the_second_look_sees_the_box_alone(shown: bool) -> None:
    """Who is visible there gets the own pose; who is not has none, and the neighbour keeps his."""
    all_people = {100: standing(100), 200: standing(140)}
    visible = all_people if shown else {200: all_people[200]}
    estimator = Greedy(all_people, [100, 200])
    (found,) = detect_and_recover(estimator, [picture(visible)], [NOBODY])
    np.testing.assert_allclose(found.keypoints[1], all_people[200], atol=1)
    assert found.confidence[1].min() > 0.5
    if shown:
        np.testing.assert_allclose(found.keypoints[0], all_people[100], atol=1)
        assert found.confidence[0].min() > 0.5
    else:
        assert found.confidence[0].max() <= 0.1


def test_people_of_several_pictures_keep_their_rows() -> None:
    a, b = {100: standing(100), 200: standing(140)}, {150: standing(60), 250: standing(110)}
    estimator = Greedy(a | b)
    images = [picture(a), picture(a | b), picture(b)]
    found = [people_with(list(some.values()), [max(some.items())[1]] * 2) for some in (a, a, b)]
    found[1] = people_with(list(a.values()), list(a.values()))
    corrected = keep_to_own_body(estimator, images, found)
    for people, some in zip(corrected, (a, a, b), strict=True):
        np.testing.assert_allclose(people.keypoints, np.stack(list(some.values())), atol=1)


def test_a_second_look_that_takes_the_neighbour_again_is_left_out() -> None:
    one = standing(100)
    found = people_with([one, one + 4], [one, one])
    (corrected,) = keep_to_own_body(Greedy({200: one}), [picture({200: one})], [found])
    assert corrected.confidence[0].min() > 0.4
    assert corrected.confidence[1].max() == 0


def half(pose: Pose) -> Pose:
    """The upper half of a body taken for the whole."""
    top = pose[:, 1].min()
    return np.asarray(np.stack([pose[:, 0], top + 0.4 * (pose[:, 1] - top)], axis=1), np.float32)


@pytest.mark.parametrize(
    "other",
    [half(standing(100)), standing(170), standing(100, height=160)],
    ids=["half a body", "elsewhere", "twice as large"],
)
def test_a_pose_out_of_line_is_refused_for_a_while(other: Pose) -> None:
    good = LastGood(standing(100), 10.0)
    assert not good.accepts(other, 10.1)
    assert good.accepts(standing(103), 10.2)
    assert not good.accepts(other, 10.3)
    assert good.accepts(other, 10.2 + LONGEST_GLITCH_S + 0.1)
    assert good.accepts(other, 10.8)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_who_walks_runs_or_falls_is_in_line(step: int) -> None:
    good = LastGood(standing(100), 0.0)
    for at in range(step, 20, step):
        assert good.accepts(standing(100 + 12.0 * at), at / 10)  # 1.5 body heights per second
    good = LastGood(standing(100, 100), 0.0)
    for at in range(step, 11, step):
        share = at / 10
        falling = (1 - share) * standing(100, 100) + share * lying(130, 135)
        assert good.accepts(falling.astype(np.float32), at / 10)


def test_a_new_number_has_no_past() -> None:
    """Two people who could be swapped get new numbers, and their poses are shown at once."""
    tracker = Tracker()
    places = [(60, 140), (60, 140), (70, 130), (80, 120), (90, 110), (98, 102), (100, 100.5)]
    for at, pair in enumerate(places):
        bodies = np.stack([standing(x) for x in pair])
        poses = bodies if at < 6 else np.stack([half(body) for body in bodies])
        boxes = Boxes(extents(bodies), np.full(2, 0.9))
        shown = tracker.update(People(boxes, poses, np.full((2, 17), 0.6)), time_s=at / 10)
    assert {one.track_id for one in shown} == {3, 4}


def test_a_clock_that_steps_back_refuses_nothing() -> None:
    good = LastGood(standing(100), 10.0)
    assert good.accepts(standing(300), 5.0)


def test_a_tracker_leaves_the_pose_out_and_keeps_the_track() -> None:
    tracker, shown = Tracker(), []
    box = extents(standing(100)[None])
    for at in range(8):
        pose = half(standing(100)) if at in (3, 4) else standing(100)
        people = People(Boxes(box, np.array([0.9])), pose[None], np.full((1, 17), 0.6))
        shown.append([one.track_id for one in tracker.update(people, time_s=at / 10)])
    assert shown == [[1], [1], [1], [], [], [1], [1], [1]]
