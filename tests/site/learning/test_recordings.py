from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from stepvad.events.record import Review
from stepvad.poses import Clip, Track
from stepvad.site.learning.rounds import (
    AGAIN_S,
    Recording,
    RecordingIndex,
    TimeSpan,
    amount_of,
    clip_without,
    find,
    held_out,
    is_well_seen,
    newest,
    spans_of,
)
from tests.processes import unreadable
from tests.site.learning.recorded import BEGIN, name_of, record_clips
from tests.site.records import record


def clip(n: int = 100, *, every: int = 1, fps: float = 10.0) -> Clip:
    """One person in every n-th frame."""
    frames = np.arange(0, n, every)
    joints = np.random.default_rng(0).uniform(0, 100, (len(frames), 17, 2)).astype(np.float32)
    track = Track(4, frames, joints, np.ones((len(frames), 17), np.float32))
    return Clip("one", fps, n, (track,))


def test_the_name_of_a_recording_says_when_it_begins(tmp_path: Path) -> None:
    (path,) = record_clips(tmp_path, "the-yard", [clip()], BEGIN + 0.25)
    found = Recording.from_path(path)
    assert found is not None
    assert (found.camera, found.begin) == ("the-yard", BEGIN + 0.25)
    assert Recording.from_path(tmp_path / "mine.parquet") is None
    (path.parent / "mine.parquet").write_bytes(b"")
    assert find(tmp_path / "poses") == [found]


@pytest.mark.parametrize(
    ("first_s", "last_s", "left"),
    [
        (2.0, 3.0, [range(20), range(31, 100)]),
        (-5.0, 1.0, [range(11, 100)]),
        (9.0, 1e9, [range(90)]),
        (8.95, float("inf"), [range(90)]),
        (-9.0, -1.0, [range(100)]),
        (20.0, 30.0, [range(100)]),
        (-1.0, 11.0, []),
    ],
)
def test_a_span_is_cut_out_and_nothing_bridges_it(
    first_s: float, last_s: float, left: list[range]
) -> None:
    cut = clip_without(clip(), first_s, last_s)
    assert [track.frames.tolist() for track in cut.tracks] == [[*part] for part in left]
    assert len({track.id for track in cut.tracks}) == len(left)


def test_only_the_spans_of_its_camera_are_left_out(tmp_path: Path) -> None:
    (path,) = record_clips(tmp_path, "yard", [clip()])
    one = Recording.from_path(path)
    assert one is not None
    avoid = [TimeSpan("door", BEGIN, BEGIN + 5), TimeSpan("yard", BEGIN + 1, BEGIN + 2)]
    assert one.clip(avoid).n_poses == 100 - 11


def test_right_alerts_are_never_learned_and_unjudged_ones_not_fitted() -> None:
    events = [record("yard", n) for n in range(4)]
    reviews = {
        events[0].id: Review("right", 1.0),
        events[1].id: Review("normal", 1.0),
        events[2].id: Review(None, 1.0),
    }
    spans = spans_of(events, reviews, unjudged=False)
    assert [span.first for span in spans] == [events[0].start_time - 2.0]
    assert len(spans_of(events, reviews, unjudged=True)) == 3
    assert spans[0].last == float("inf")  # it goes on


def test_footage_of_an_overloaded_camera_is_no_footage(tmp_path: Path) -> None:
    assert is_well_seen(clip())
    assert not is_well_seen(clip(every=5))
    assert not is_well_seen(Clip("none", 10.0, 10, ()))
    record_clips(tmp_path, "yard", [clip(), clip(every=5)])
    index = RecordingIndex(tmp_path / "poses")
    assert index.update(10)
    assert (len(index), index.amount()) == (1, amount_of(clip()))


def test_files_are_counted_some_at_a_time_and_deleted_ones_forgotten(tmp_path: Path) -> None:
    paths = record_clips(tmp_path, "yard", [clip()] * 3)
    index = RecordingIndex(tmp_path / "poses")
    assert not index.update(2)
    assert index.update(2)
    assert index.amount().poses == 300
    assert index.amount(since=BEGIN + 1).poses == 200
    paths[0].unlink()
    paths[1].write_bytes(b"torn")
    assert index.update(2)
    assert index.amount().poses == 200  # what was read once is known
    assert index.amount().hours == pytest.approx(2 * 10 / 3600)


def test_a_recording_that_cannot_be_read_now_is_counted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paths = record_clips(tmp_path, "yard", [clip()] * 3)
    index = RecordingIndex(tmp_path / "poses")
    with unreadable(paths[0]):
        assert not index.update(2)
        assert index.update(2)  # does not try the same file for ever
        assert index.amount().poses == 200
    assert caplog.text.count("left out of learning for now") == 1
    assert paths[0].name in caplog.text
    assert index.update(2)
    assert index.amount().poses == 200  # not tried at every look
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + AGAIN_S + 1)
    assert index.update(2)
    assert index.amount().poses == 300


def several(n: int, camera: str = "yard", every_s: float = 120.0) -> list[Recording]:
    names = [name_of(camera, BEGIN + k * every_s) for k in range(n)]
    return [
        one for name in names if (one := Recording.from_path(Path(f"{name}.parquet"))) is not None
    ]


def test_a_third_of_the_time_is_held_out_in_blocks() -> None:
    few, many = several(7), several(300)
    assert [few.index(one) for one in held_out(few)] == [2, 5]
    held = [many.index(one) for one in held_out(many)]
    assert held[:10] == [10, 11, 12, 13, 14, 25, 26, 27, 28, 29]  # ten minutes together
    assert len(held) == 100
    both = sorted([*several(6), *several(6, "door")], key=lambda one: one.begin)
    assert {one.camera for one in held_out(both)} == {"yard", "door"}


def test_too_much_footage_is_thinned_over_all_of_its_days() -> None:
    week = several(5000)
    kept = newest(week, 48.0)
    assert 0.2 * len(week) < len(kept) <= 48 * 30
    assert kept[0] == week[0]
    assert week[-1].begin - kept[-1].begin < 3600
    assert newest(week[:100], 48.0) == week[:100]
