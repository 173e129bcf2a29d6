"""A pose on a neighbour's body is looked for again, and otherwise left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from stepvad.video.following import look
from stepvad.video.neighbours import keep_to_own_body, on_neighbour
from stepvad.video.people import NOBODY, Boxes, People, extents
from stepvad.video.pixels import Image
from tests.video.test_following import Pose, standing

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
    nobody = people_with(poses, poses).take(np.zeros(3, np.bool_))
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
    (found,) = look(estimator, [picture(visible)], [NOBODY])
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
