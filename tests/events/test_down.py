"""Who goes down fast and is not seen again raises an event, if that is switched on."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from stepvad.codec import decode, encode
from stepvad.detector import Detector
from stepvad.events.camera import (
    WENT_DOWN,
    CameraEvents,
    CameraEventsState,
    CameraProfile,
    RecordChange,
    in_words,
)
from stepvad.events.down import Descent, SlotPeople, went_down
from stepvad.events.record import Record
from stepvad.events.rules import Rules
from stepvad.model.scoring import WindowScores
from stepvad.poses import Pose

RATE, SIZE = 10.0, (640, 480)
FALL, LAST = 30, 35
"""The slot in which the descent begins, and that of the last pose."""


def pose(track: int, x: float, y: float, height: float = 100.0) -> Pose:
    """A person around a place, a third as wide as high."""
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 3), np.linspace(-1, 1, 6)), axis=2)
    joints = grid.reshape(-1, 2)[:17] * [height / 6, height / 2] + [x, y]
    return Pose(track, joints.astype(np.float32), np.full(17, 0.8, np.float32))


def scene(
    *, n: int = 80, drop: float = 60.0, x: float = 320.0, slow: int = 1, others: int = 0
) -> list[list[Pose]]:
    """Somebody stands until slot 30, goes down within half a second, and is gone."""
    frames: list[list[Pose]] = [[] for _ in range(n)]
    last = FALL + (LAST - FALL) * slow
    for slot in range(last + 1):
        down = drop * max(slot - FALL, 0) / (last - FALL)
        frames[slot].append(pose(1, x, 200 + down))
    for slot, people in enumerate(frames):
        people += [pose(100 + at, 60.0 * at + slot, 120) for at in range(others)]
    return frames


def found(frames: list[list[Pose]], rate: float = RATE, step: int = 1) -> list[tuple[int, Descent]]:
    kept: list[SlotPeople] = []
    descents = []
    for slot in range(0, len(frames), step):
        kept.append(SlotPeople(slot, tuple(frames[slot])))
        descents += [(slot, one) for one in went_down(kept, rate, SIZE)]
    return descents


@pytest.mark.parametrize("others", [0, 3])
def test_a_fall_is_found_once_two_seconds_later(others: int) -> None:
    assert found(scene(others=others)) == [(LAST + 20, Descent(1, FALL, LAST))]


def test_joints_that_were_not_found_do_not_count() -> None:
    frames = [[hidden(one) for one in people] for people in scene()]
    assert found(frames) == [(LAST + 20, Descent(1, FALL, LAST))]
    assert not found([[hidden(one) for one in people] for people in scene(drop=20)])


def hidden(one: Pose) -> Pose:
    """The same person without one ankle from slot to slot."""
    keypoints, confidence = one.keypoints.copy(), one.confidence.copy()
    at = int(one.keypoints[0, 1]) % 17
    keypoints[at], confidence[at] = 0, 0
    return Pose(one.track_id, keypoints, confidence)


def test_it_is_found_where_slots_are_missing() -> None:
    ((slot, descent),) = found(scene(drop=100), step=3)
    assert descent.track == 1
    assert slot <= LAST + 20 + 3


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(scene(drop=20), id="bends a little"),
        pytest.param(scene(drop=0), id="goes behind a door"),
        pytest.param(scene(slow=6), id="sits down slowly"),
        pytest.param(scene(x=20), id="leaves at the side"),
        pytest.param(scene(drop=240), id="leaves at the bottom"),
    ],
)
def test_others_who_vanish_are_not(frames: list[list[Pose]]) -> None:
    assert not found(frames)


def test_who_is_seen_again_did_not_vanish() -> None:
    frames = scene()
    frames[LAST + 15].append(pose(1, 320, 260))
    assert not found(frames)


@pytest.mark.parametrize(("x", "expected"), [(330.0, 0), (600.0, 1)])
def test_somebody_new_at_the_place_is_the_same_person(x: float, expected: int) -> None:
    frames = scene()
    for slot in range(LAST + 8, len(frames)):
        frames[slot].append(pose(2, x, 260))
    assert len(found(frames)) == expected


def test_who_stood_beside_is_somebody_else() -> None:
    frames = scene()
    for slot, people in enumerate(frames):
        people.append(pose(2, 340 + 0.1 * slot, 240))
    assert [one.track for _, one in found(frames)] == [1]


def test_a_glimpse_is_no_person() -> None:
    frames: list[list[Pose]] = [[] for _ in range(60)]
    for slot in range(4):
        frames[10 + slot].append(pose(1, 320, 200 + 20 * slot))
    assert not found(frames)


def events(small_model: Detector, *, went_down: bool = True) -> CameraEvents:
    profile = CameraProfile(
        camera="ward",
        rate=RATE,
        rules=Rules(threshold=2.5),
        detector=small_model,
        model_id="small",
        model_sha256="0" * 64,
        zones={"floor": [(0, 0.5), (1, 0.5), (1, 1), (0, 1)]},
        went_down=went_down,
    )
    made = CameraEvents(profile, count().__next__)
    made.start_connection(1_700_000_000.0)
    return made


def scores(slot: int, value: float | None) -> WindowScores:
    """One window of person 1, or none."""
    A = np.array([] if value is None else [value], np.float32)
    whole = np.ones(len(A), np.int64)
    return WindowScores(whole, whole * slot, np.ones_like(A), np.repeat(A[:, None], 4, axis=1), A)


def seen(
    watched: CameraEvents, frames: list[list[Pose]], first: int = 0, high: int | None = None
) -> list[RecordChange]:
    changes = []
    for slot, people in enumerate(frames[first:], first):
        value = 4.0 if high is not None and high <= slot <= LAST else None
        changes += watched.observe(slot, SIZE, people, scores(slot, value))
    return changes


def test_it_raises_one_event_that_ends(small_model: Detector) -> None:
    changes = seen(events(small_model), scene(n=120))
    assert [kind for kind, _ in changes] == ["new", "end"]
    raised, over = changes[0][1], changes[1][1]
    assert (raised.label, raised.top_score, raised.tracks) == (WENT_DOWN, 2.5, (1,))
    assert raised.why == "went down fast and was not seen again"
    assert raised.box is not None
    assert raised.zones == ("floor",)
    assert over.end_time is not None
    assert over.label == WENT_DOWN
    assert decode(Record, encode(raised), "event") == raised


def test_it_is_off_by_default(small_model: Detector) -> None:
    assert not seen(events(small_model, went_down=False), scene())


def test_an_open_event_says_it_too(small_model: Detector) -> None:
    watched = events(small_model)
    changes = seen(watched, scene(n=60), high=FALL)
    assert (changes[0][0], changes[0][1].label) == ("new", "anomaly")
    marked = changes[-1][1]
    assert (marked.label, marked.id, marked.top_score) == (WENT_DOWN, changes[0][1].id, 4.0)
    assert in_words(marked, "fast").why == "went down fast and was not seen again; fast"


def test_its_state_is_restored(small_model: Detector) -> None:
    frames = scene(n=120)
    whole, first = events(small_model), events(small_model)
    expected = seen(whole, frames)
    begun = seen(first, frames[:60])
    again = events(small_model)
    again.restore(decode(CameraEventsState, encode(first.state()), "events of a camera"))
    assert begun + seen(again, frames, first=60) == expected
