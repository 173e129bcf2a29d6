"""The load of a camera: which share of its frames is left out, and what that means."""

from __future__ import annotations

import pytest

from stepvad.site.intake.load import FrameLoad, Load, LoadState, of_frames
from stepvad.site.intake.status import LiveStatus


def loaded(scored: int, shed: int, *, seconds: int = 12, rate: float = 10.0) -> Load:
    load = FrameLoad()
    for second in range(seconds):
        load.add(float(second), scored=scored, shed=shed)
    return load.view(float(seconds), rate=rate, blind=0.5)


@pytest.mark.parametrize(
    ("scored", "shed", "state", "words"),
    [
        (10, 0, "ok", ""),
        (9, 1, "ok", ""),
        (7, 3, "overloaded", "overloaded: 3 of 10 frames left out"),
        (5, 5, "overloaded", "overloaded: 1 of 2 frames left out"),
        (2, 8, "not watching", "not watching: 4 of 5 frames left out"),
        (0, 10, "not watching", "not watching: all frames left out"),
    ],
)
def test_the_share_left_out_decides(scored: int, shed: int, state: LoadState, words: str) -> None:
    found = loaded(scored, shed)
    assert (found.state, found.words) == (state, words)


def test_frames_beyond_the_rate_are_no_loss() -> None:
    assert loaded(10, 15).state == "ok"  # a camera of 25 frames a second, 10 asked for


def test_a_slow_camera_is_not_overloaded() -> None:
    assert loaded(5, 0) == Load()


def test_nothing_is_said_in_the_first_seconds_and_old_frames_are_forgotten() -> None:
    load = FrameLoad()
    load.add(0.0, shed=10)
    assert load.view(1.0, rate=10, blind=0.5) == Load()
    assert load.view(5.0, rate=10, blind=0.5).state == "not watching"
    assert load.view(20.0, rate=10, blind=0.5) == Load()


def test_shares_are_said_as_people_say_them() -> None:
    said = [of_frames(share) for share in (0.34, 0.66, 0.75, 0.81, 0.9, 0.97, 1.0)]
    assert said == [
        *("1 of 3 frames", "2 of 3 frames", "3 of 4 frames", "4 of 5 frames", "9 of 10 frames"),
        *("nearly all frames", "all frames"),
    ]


def test_a_camera_that_is_lost_is_not_overloaded_and_starts_afresh() -> None:
    now = [0.0]
    status = LiveStatus(lambda: now[0])
    status.camera("yard", rate=10.0, threshold=3.0, model="m", zones={})
    status.state("yard", "online", "", 0.0)
    for second in range(8):
        now[0] = float(second)
        status.count("yard", "shed", 8)
        status.count("yard", "scored", 2)
    assert status.snapshot().cameras[0].load.state == "not watching"
    status.state("yard", "offline", "the stream ended", 8.0)
    assert status.snapshot().cameras[0].load == Load()
    status.state("yard", "online", "", 9.0)
    assert status.snapshot().cameras[0].load == Load()
