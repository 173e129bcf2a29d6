"""The gate asks for a look when a person enters, and not for noise, light or weather."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.video.gate import (
    CALM_S,
    IGNORED_S,
    LONGEST_WAIT_S,
    WHOLE_S,
    Gate,
    Looks,
    Luma,
    shrink,
)

RATE = 10
SHAPE = (180, 320)
NOBODY = np.empty((0, 4), np.float32)
Corners = NDArray[np.float32]


@pytest.fixture
def scene() -> Scene:
    return Scene()


class Scene:
    """A textured picture with the noise of a camera, in which boxes of grey walk."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._noise = self._random.normal(0, 1, (16, *SHAPE)).astype(np.float32)
        coarse = self._random.integers(60, 200, (SHAPE[0] // 20, SHAPE[1] // 20))
        self.empty = np.kron(coarse, np.ones((20, 20))).astype(np.float32)

    def frame(
        self, *boxes: Iterable[float], noise: float = 3, light: float = 1, grey: float = 20
    ) -> Luma:
        picture = self.empty * light
        for left, top, right, bottom in np.array(boxes, int).reshape(-1, 4).tolist():
            picture[top:bottom, left:right] = grey
        picture = picture + noise * self._noise[self._random.integers(len(self._noise))]
        return np.asarray(picture.clip(0, 255), np.uint8)

    def rain(self, drops: int) -> Luma:
        picture = self.frame()
        for x, y in self._random.integers(0, (SHAPE[1], SHAPE[0] - 20), (drops, 2)).tolist():
            picture[y : y + 20, x] = 230
        return picture


def corners(*boxes: Iterable[float]) -> Corners:
    return np.array(boxes, np.float32).reshape(-1, 4)


def standing(x: float) -> list[float]:
    """The box of a person of 60 pixels."""
    return [x, 80, x + 22, 140]


class Watched:
    """A gate whose every ask is answered at once by a look that finds the people given."""

    def __init__(self) -> None:
        self.gate, self.looks, self.time_s = Gate(), Looks(), 0.0

    def sees(self, frame: Luma, people: Corners = NOBODY) -> bool:
        """Tell if the frame was looked at."""
        self.time_s += 1 / RATE
        moved = self.gate.moved(frame, people, self.time_s)
        if looked := self.looks.due(moved, self.time_s):
            self.gate.explain(people, self.time_s)
            self.looks.looked(self.time_s, len(people))
        return looked


def settled(scene: Scene) -> Watched:
    """A gate that has seen an empty scene for three seconds."""
    watched = Watched()
    for _ in range(3 * RATE):
        watched.sees(scene.frame())
    return watched


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda i: {}, id="noise"),
        pytest.param(lambda i: {"noise": 25}, id="night"),
        pytest.param(lambda i: {"light": 1 + 0.05 * np.sin(2 * np.pi * i / 7.3)}, id="flicker"),
    ],
)
def test_noise_and_flicker_ask_for_nothing_but_whole_looks(
    scene: Scene, change: Callable[[int], dict[str, float]]
) -> None:
    watched = Watched()
    looks = [watched.sees(scene.frame(**change(i))) for i in range(15 * RATE)]
    assert looks[0]
    assert sum(looks[5 * RATE :]) == 2


def test_a_person_who_enters_is_looked_at_within_three_frames(scene: Scene) -> None:
    watched = settled(scene)
    assert any(watched.sees(scene.frame(standing(-22 + 8 * i))) for i in range(1, 4))


def test_a_known_person_asks_for_nothing_and_another_does(scene: Scene) -> None:
    watched = settled(scene)
    watched.sees(scene.frame(standing(50)), corners(standing(50)))
    walk = [standing(50 + 4 * i) for i in range(2 * RATE)]
    assert not any(watched.sees(scene.frame(box), corners(box)) for box in walk)
    assert watched.sees(scene.frame(walk[-1], standing(250)), corners(walk[-1]))


def test_a_known_person_never_becomes_background(scene: Scene) -> None:
    watched = settled(scene)
    box = standing(100)
    for _ in range(40 * RATE):
        watched.sees(scene.frame(box), corners(box))
    # the scene behind is what it was: nothing moves when they leave, and their return does
    gone = [watched.sees(scene.frame()) for _ in range(2 * RATE)]
    assert not any(gone)
    assert watched.sees(scene.frame(box))


def test_lights_that_change_the_whole_picture_ask_for_nothing(scene: Scene) -> None:
    watched = settled(scene)
    dark = [watched.sees(scene.frame(light=0.35)) for _ in range(4 * RATE)]
    assert sum(dark) == 1  # the whole look
    assert watched.sees(scene.frame(standing(100), light=0.35, grey=120))


def test_a_lamp_beside_is_looked_at_and_then_part_of_the_scene(scene: Scene) -> None:
    watched = settled(scene)
    scene.empty[:, 160:] *= 0.6
    dark = [watched.sees(scene.frame()) for _ in range(6 * RATE)]
    assert dark[0]
    assert sum(dark[4 * RATE :]) <= 1
    assert watched.sees(scene.frame(standing(200)))


def test_rain_asks_for_about_one_look_a_second(scene: Scene) -> None:
    watched = settled(scene)
    wet = [watched.sees(scene.rain(400)) for _ in range(13 * RATE)]
    assert sum(wet[3 * RATE :]) <= 11


def test_what_a_look_explained_is_nobodys_for_a_second_only_where_it_moved(scene: Scene) -> None:
    gate = Gate()
    for i in range(3 * RATE):
        gate.moved(scene.frame(), NOBODY, i / RATE)
        gate.explain(NOBODY, i / RATE)
    begin_s, bush = 3.0, standing(100)
    assert gate.moved(scene.frame(bush), NOBODY, begin_s)
    gate.explain(NOBODY, begin_s)
    assert not gate.moved(scene.frame(bush), NOBODY, begin_s + 0.1)
    assert gate.moved(scene.frame(bush, standing(200)), NOBODY, begin_s + 0.2)
    assert gate.moved(scene.frame(bush), NOBODY, begin_s + 0.2 + IGNORED_S)


def test_a_look_that_comes_late_explains_the_frame_that_it_saw(scene: Scene) -> None:
    gate = Gate()
    for i in range(3 * RATE):
        gate.moved(scene.frame(), NOBODY, i / RATE)
        gate.explain(NOBODY, i / RATE)
    assert gate.moved(scene.frame(standing(100)), NOBODY, 3.0)
    assert gate.moved(scene.frame(standing(200)), NOBODY, 3.1)
    gate.explain(NOBODY, 3.0)
    assert gate.moved(scene.frame(standing(200)), NOBODY, 3.2)


def test_people_are_still_until_they_move(scene: Scene) -> None:
    gate, boxes = Gate(), corners(standing(50), standing(200))
    gate.moved(scene.frame(*boxes), boxes, 0.0)
    gate.moved(scene.frame(*boxes), boxes, 0.1)
    gate.moved(scene.frame(boxes[0], standing(204)), boxes, 0.2)
    assert gate.still(boxes, [0.0, 0.0], 0.1).tolist() == [True, True]
    assert gate.still(boxes, [0.0, 0.1], 0.2).tolist() == [True, False]
    # frames that are not kept tell nothing
    assert gate.still(boxes, [-1.0, 0.0], 0.1).tolist() == [False, True]
    assert not gate.still(boxes, [0.0, 0.0], 0.3).any()


def test_another_size_or_an_earlier_time_begins_anew(scene: Scene) -> None:
    gate = Gate()
    frame = scene.frame()
    assert gate.moved(frame, NOBODY, 0.0)
    gate.explain(NOBODY, 0.0)
    assert not gate.moved(frame, NOBODY, 0.1)
    assert gate.moved(frame[:100], NOBODY, 0.2)
    gate.explain(NOBODY, 0.2)
    assert gate.moved(frame[:100], NOBODY, 0.1)


def test_fruitless_looks_wait_up_to_a_second_and_a_new_person_or_calm_ends_it() -> None:
    looks = Looks()
    times = [i / 100 for i in range(1000)]
    asked = []
    for time_s in times:
        if looks.due(True, time_s):
            asked.append(time_s)
            looks.looked(time_s, 0)
    waits = np.diff(asked)
    assert waits[:3] == pytest.approx([0.15, 0.3, 0.6], abs=0.011)
    assert waits[3:] == pytest.approx(LONGEST_WAIT_S, abs=0.011)
    # a new person
    looks.looked(10.0, 1)
    assert looks.due(True, 10.01)
    # calm, after which fruitless looks wait as briefly as at first
    for time_s in (11.0, 12.0, 13.0):
        assert looks.due(True, time_s)
        looks.looked(time_s, 1)
    assert not looks.due(True, 13.2)
    looks.due(False, 13.3 + CALM_S)
    assert looks.due(True, 13.4 + CALM_S)
    looks.looked(13.4 + CALM_S, 1)
    assert looks.due(True, 13.6 + CALM_S)


def test_a_camera_on_which_nothing_moves_is_looked_at_every_five_seconds() -> None:
    looks = Looks()
    assert looks.due(False, 0.0)
    looks.looked(0.0, 0)
    assert not looks.due(False, WHOLE_S - 0.1)
    assert looks.due(False, WHOLE_S)


@pytest.mark.parametrize("shape", [(72, 128), (360, 640), (1080, 1920), (48, 64), (640, 360)])
def test_small_pictures_are_of_one_width(shape: tuple[int, int]) -> None:
    small = shrink(np.full(shape, 7, np.uint8))
    assert small.shape == (round(128 * shape[0] / shape[1]), 128)
    assert (small == 7).all()
