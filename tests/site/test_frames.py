"""Frames on their way to scoring: time slots, queues that shed, the load of a camera."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from stepvad.site.frames import FrameQueues, Lost, QueuedFrame
from stepvad.site.load import HANGS, REMEDY, FrameLoad, Load, LoadState, of_frames
from stepvad.site.slots import JUMP_S, PlayPace, SlotAnchor, TimeSlots
from stepvad.site.status import Field, LiveStatus


def frame(slot: int, camera: str = "a", connection: int = 0) -> QueuedFrame:
    return QueuedFrame(
        camera=camera,
        connection=connection,
        rate=10.0,
        wall0=0.0,
        slot=slot,
        arrived=0.0,
        size=(4, 4),
        poses=(),
    )


class Counted(LiveStatus):
    def __init__(self) -> None:
        super().__init__()
        self.of: Counter[tuple[str, str]] = Counter()

    def count(self, name: str, field: Field, n: int = 1) -> None:
        if field != "frames_in":
            self.of[name, field] += n


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def queues(counted: Counted) -> FrameQueues:
    return FrameQueues(["a", "b"], counted)


def slots(queues: FrameQueues) -> list[int | str]:
    """What is handed on, of all cameras."""
    found: list[int | str] = []
    while items := queues.next(0):
        found += ["lost" if isinstance(item, Lost) else item.slot for _, item in items]
    return found


def test_the_oldest_frames_are_shed_and_counted(queues: FrameQueues, counted: Counted) -> None:
    queues.lose("a")
    for slot in range(10):
        queues.put(frame(slot))
    assert queues.size() == 9
    assert slots(queues) == ["lost", *range(2, 10)]
    assert counted.of == {("a", "shed"): 2}


def test_a_source_that_can_wait_is_told_when_there_is_room(
    queues: FrameQueues, counted: Counted
) -> None:
    for slot in range(8):
        assert queues.wait_for_room("a", 0.0)
        queues.put(frame(slot))
    assert not queues.wait_for_room("a", 0.01)
    assert queues.wait_for_room("b", 0.0)
    taken = threading.Timer(0.2, queues.next, [0.0])
    taken.start()
    assert queues.wait_for_room("a", 20.0)
    queues.put(frame(8))
    assert counted.of == {}


def test_cameras_take_turns(queues: FrameQueues) -> None:
    for slot in range(3):
        queues.put(frame(slot, "a"))
    queues.put(frame(0, "b"))
    assert [camera for camera, _ in queues.next(0)] == ["a", "b"]
    assert [camera for camera, _ in queues.next(0)] == ["a"]


def test_frames_twice_and_late_are_skipped(queues: FrameQueues, counted: Counted) -> None:
    for slot in (0, 2, 1, 2, 3):
        queues.put(frame(slot))
    assert slots(queues) == [0, 2, 3]
    assert counted.of == {("a", "skipped"): 2}


def test_another_connection_counts_from_0_again(queues: FrameQueues) -> None:
    queues.put(frame(7))
    queues.lose("a")
    queues.put(frame(0, connection=1))
    assert slots(queues) == [7, "lost", 0]


def test_slots_go_by_the_time_of_the_stream_not_by_when_frames_arrive() -> None:
    slots = TimeSlots(10)
    late = [0.0, 0.11, 0.9, 0.91, 0.92, 0.93]  # a burst after a pause of the network
    assert [slots.place(500 + 0.1 * i, at) for i, at in enumerate(late)] == [0, 1, 2, 3, 4, 5]


def test_a_faster_stream_gives_each_slot_away_once() -> None:
    slots = TimeSlots(10)
    placed = [slots.place(i / 25, i / 25) for i in range(100)]
    given = [slot for slot in placed if slot is not None]
    assert given == [*range(given[-1] + 1)]
    assert given[-1] in (39, 40)


def test_without_times_the_clock_counts() -> None:
    slots = TimeSlots(10)
    assert [slots.place(None, t) for t in (7.0, 7.1, 7.31)] == [0, 1, 3]


@pytest.mark.parametrize("jump", [-3600.0, 3600.0, -1.5, 6.0])
def test_a_stream_whose_time_jumps_goes_on_where_it_was(jump: float) -> None:
    slots = TimeSlots(10)
    times = [100.0 + 0.1 * i + (jump if i >= 20 else 0) for i in range(40)]
    assert [slots.place(t, 0.1 * i) for i, t in enumerate(times)] == [*range(40)]


def test_a_first_frame_without_a_time_changes_nothing() -> None:
    slots = TimeSlots(10)
    assert [slots.place(t, 0.1 * i) for i, t in enumerate([None, 50.1, 50.2])] == [0, 1, 2]


def test_a_frame_in_disorder_is_skipped_and_the_others_stay() -> None:
    slots = TimeSlots(10)
    assert [slots.place(t, t) for t in (0.0, 0.2, 0.1, 0.3)] == [0, 2, None, 3]


def stamped(frames: Iterable[tuple[float, float]], rate: float = 10.0) -> list[tuple[float, float]]:
    """The arrival and the time of each frame, from its stream time and its arrival."""
    slots, anchor, found = TimeSlots(rate), SlotAnchor(rate), []
    for pts, arrived in frames:
        slot = slots.place(pts, arrived)
        if slot is not None:
            found.append((arrived, anchor.wall0(slot, 1e9 + arrived) - 1e9 + slot / rate))
    return found


@pytest.mark.parametrize("pace", [0.8, 0.9, 1.0, 1.1])
def test_times_stay_near_the_clock_however_slow_a_stream_runs(pace: float) -> None:
    rng = np.random.default_rng(1)
    # eight minutes with jitter, and with a pause of two seconds in each, after which a burst comes
    due = [n / 10 / pace for n in range(round(4800 * pace))]
    late = rng.uniform(0, 0.3, len(due))
    arrived = np.maximum.accumulate([t + more for t, more in zip(due, late, strict=True)])
    arrived = np.array([max(t, 60 * (t // 60) + 2) if t > 60 else t for t in arrived.tolist()])
    found = stamped(zip((n / 10 for n in range(len(due))), arrived.tolist(), strict=True))
    times = np.array([time for _, time in found])
    in_time = arrived - due < 0.5
    assert (np.diff(times) > -1e-6).all(), "no time jumps back"
    assert (times - arrived < 1e-6).all(), "none is ahead"
    assert np.abs(times - arrived)[in_time].max() < 1
    assert np.abs(times - arrived).max() < 3, "a frame that was held up keeps its own time"


def test_times_follow_a_clock_that_is_set() -> None:
    slots = range(200)
    anchor, wall = SlotAnchor(10.0), [n / 10 + (3600.0 if n >= 100 else 0.0) for n in slots]
    times = [anchor.wall0(slot, wall[slot]) + slot / 10 for slot in slots]
    assert times[:100] == pytest.approx(wall[:100])
    assert times[140:] == pytest.approx(wall[140:])


def played(times: list[float], *, rate: float = 25.0, slower_s: float = 0.0) -> list[float]:
    """When frames with these timestamps are due, if each takes that long to decode."""
    pace, clock, due = PlayPace(rate), 1000.0, []
    for pts in times:
        clock += slower_s
        due.append(pace.due(pts, clock))
        clock = max(clock, due[-1])
    return [round(at - 1000.0, 3) for at in due]


def test_a_file_is_played_at_its_own_pace() -> None:
    assert played([7.0, 7.04, 7.08, 9.0, 9.0 + JUMP_S]) == [0.0, 0.04, 0.08, 2.0, 2.0 + JUMP_S]


@pytest.mark.parametrize("jump", [95443.0, -95443.0, JUMP_S + 0.1, -1.5])
def test_a_file_whose_timestamps_jump_goes_on_where_it_was(jump: float) -> None:
    times = [0.04 * i + (jump if i >= 2 else 0.0) for i in range(5)]
    assert played(times) == [0.0, 0.04, 0.08, 0.12, 0.16]


def test_a_file_that_decodes_slowly_catches_up() -> None:
    assert played([0.0, 0.04, 0.08, 3.0], slower_s=0.5) == [0.5, 0.54, 0.58, 3.5]


def loaded(scored: int, shed: int, *, seconds: int = 12, rate: float = 10.0) -> Load:
    load = FrameLoad()
    for second in range(seconds):
        load.add(float(second), scored=scored, shed=shed)
    return load.view(float(seconds), rate=rate)


@pytest.mark.parametrize(
    ("scored", "shed", "state", "words"),
    [
        (10, 0, "ok", ""),
        (9, 1, "ok", ""),
        (7, 3, "overloaded", "overloaded: 3 of 10 frames left out"),
        (5, 5, "overloaded", "overloaded: 1 of 2 frames left out"),
        (2, 8, "overloaded", "overloaded: 4 of 5 frames left out"),
        (1, 9, "not watching", "not watching: 9 of 10 frames left out"),
        (0, 10, "not watching", "not watching: all frames left out"),
    ],
)
def test_the_share_left_out_decides(scored: int, shed: int, state: LoadState, words: str) -> None:
    found = loaded(scored, shed)
    assert (found.state, found.words) == (state, words)


def test_a_camera_process_that_hangs_is_no_slow_machine() -> None:
    load = FrameLoad()
    for second in range(12):
        load.add(float(second), shed=10)
    found = load.view(12.0, rate=10.0, hangs=True)
    assert found.words == f"not watching: all frames left out; {HANGS}"
    assert "slow" not in found.advice
    assert REMEDY in loaded(0, 10).advice


def test_frames_beyond_the_rate_are_no_loss() -> None:
    assert loaded(10, 15).state == "ok"  # a camera of 25 frames a second, 10 asked for


def test_a_camera_needs_two_frames_a_second() -> None:
    assert loaded(2, 3, rate=5.0).state == "overloaded"
    assert loaded(1, 4, rate=5.0).state == "not watching"


def test_a_slow_camera_is_not_overloaded() -> None:
    assert loaded(5, 0) == Load()


def test_nothing_is_said_in_the_first_seconds_and_old_frames_are_forgotten() -> None:
    load = FrameLoad()
    load.add(0.0, shed=10)
    assert load.view(1.0, rate=10) == Load()
    assert load.view(5.0, rate=10).state == "not watching"
    assert load.view(20.0, rate=10) == Load()


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
    assert status.snapshot().cameras[0].load.state == "overloaded"
    status.state("yard", "offline", "the stream ended", 8.0)
    assert status.snapshot().cameras[0].load == Load()
    status.state("yard", "online", "", 9.0)
    assert status.snapshot().cameras[0].load == Load()
