"""Messages come out as they went in; whatever else arrives is refused with one error."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepvad.errors import DataError
from stepvad.fleet import wire
from stepvad.fleet.subjects import Subjects, escaped
from stepvad.fleet.wire import Batch, UnreadableError
from stepvad.poses import Pose
from stepvad.skeletons import COCO17, STEP18
from tests.site.records import record

DATA = Path(__file__).parent / "data"
CONNECTION = wire.CameraConnection(
    site="north", camera="gate", epoch=3, wall0=1.7e9, rate=10.0, size=(1920, 1080)
)
NAMES = st.text(min_size=1, max_size=20).filter(str.isprintable)


def batch(seed: int, people: list[int], *, skeleton: Any = COCO17, **more: Any) -> Batch:
    rng = np.random.default_rng(seed)
    V = skeleton.V
    frames = [
        (
            7 + 2 * i,
            [
                Pose(
                    100 * i + j,
                    rng.uniform(0, 1900, (V, 2)).astype(np.float32),
                    rng.uniform(0, 1, V).astype(np.float32),
                )
                for j in range(n)
            ],
        )
        for i, n in enumerate(people)
    ]
    seq, lost = more.pop("seq", 40), more.pop("lost", None)
    return wire.batch_of(frames, replace(CONNECTION, skeleton=skeleton, **more), seq, lost)


def same(one: Batch, other: Batch) -> bool:
    arrays = ("tracks", "keypoints", "confidence")
    plain = ("connection", "seq", "slots", "people", "lost")
    return all(getattr(one, name) == getattr(other, name) for name in plain) and all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in arrays
    )


@given(
    seed=st.integers(0, 99),
    people=st.lists(st.integers(0, 4), max_size=5),
    site=NAMES,
    camera=NAMES,
    epoch=st.integers(0, 2**62),
    seq=st.integers(0, 2**40),
    wall0=st.floats(0, 4e9),
    skeleton=st.sampled_from([COCO17, STEP18]),
    lost=st.none() | st.just("camera lost"),
)
def test_a_batch_comes_out_as_it_went_in(seed: int, people: list[int], **facts: Any) -> None:
    sent = batch(seed, people, **facts)
    assert same(wire.decode(wire.encode(sent)), sent)


def test_half_precision_errs_by_less_than_a_tenth_of_a_pixel_for_a_person() -> None:
    rng = np.random.default_rng(1)
    keypoints = (1700 + rng.uniform(0, 120, (17, 2))).astype(np.float32)
    confidence = np.full(17, 0.5, np.float32)
    keypoints[4], confidence[4] = 0, 0
    sent = wire.batch_of([(0, [Pose(1, keypoints, confidence)])], CONNECTION, 0)
    data = wire.encode(sent, "f2")
    got = wire.decode(data)
    assert np.abs(got.keypoints - sent.keypoints).max() < 0.1
    assert got.keypoints[0, 4].tolist() == [0, 0]  # a joint that was not found stays one


def test_parts_and_poses_of_a_batch_are_those_of_its_frames() -> None:
    whole = batch(0, [2, 0, 3, 1])
    part = whole.part(1, 3)
    assert (part.seq, part.end, part.slots) == (41, 43, [9, 11])
    assert [pose.track_id for pose in part.poses(1)] == [200, 201, 202]
    assert np.array_equal(part.poses(1)[2].keypoints, whole.poses(2)[2].keypoints)


def test_a_confidence_that_is_nan_counts_as_zero() -> None:
    sent = batch(0, [1])
    sent.confidence[0, 3] = np.nan
    assert wire.decode(wire.encode(sent)).confidence[0, 3] == 0


@pytest.mark.parametrize("name", ["poses-1.0-f4", "poses-1.0-f2", "poses-1.7-f4"])
def test_recorded_messages_are_read_for_ever(name: str) -> None:
    """The last one has fields that nobody knows, as a later minor version may."""
    got = wire.decode((DATA / f"{name}.msgpack").read_bytes())
    expected = batch(5, [2, 0, 1])
    assert (got.connection, got.seq, got.slots) == (CONNECTION, 40, [7, 9, 11])
    assert got.tracks.tolist() == [0, 1, 200]
    assert np.abs(got.keypoints - expected.keypoints).max() < (1.0 if name.endswith("f2") else 1e-9)


def test_another_major_version_is_refused() -> None:
    facts = msgpack.unpackb(wire.encode(batch(0, [1])))
    with pytest.raises(UnreadableError, match="expected version 1, got"):
        wire.decode(msgpack.packb(facts | {"v": [2, 0]}))


BAD: dict[str, Any] = {
    "v": [None, 1, [], ["1"]],
    "site": ["", "a\nb", 7, None, "x" * 200, b"a"],
    "camera": ["", None],
    "epoch": [-1, 1.5, True, 2**63],
    "wall0": [float("nan"), float("inf"), "now"],
    "rate": [0, -1.0, float("nan"), 1e9],
    "size": [[1], None, [1, -1], [1, 2, 3], "ab"],
    "seq": [-1, None, 2**60],
    "skeleton": ["unheard", None, []],
    "precision": ["f8", None, []],
    "slots": [[0], [3, 2], [1, 1], [-1, 0], [0.5, 1], [True, 2], None, [0, 2**40], "ab"],
    "people": [[1], [1, -1], [2, 2], [3, 3], None, [2**40, 1], [2**62, 2**62]],
    "tracks": [b"", b"123", None, "abc", 5],
    "keypoints": [b"", b"12", None, np.full(102, np.nan, "<f4").tobytes(), 7],
    "confidence": [b"", None, np.full(51, np.inf, "<f4").tobytes()],
}


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, vs in BAD.items() for v in vs])
def test_a_wrong_field_is_refused(field: str, value: Any) -> None:
    facts = msgpack.unpackb(wire.encode(batch(0, [1, 2])))
    with pytest.raises(UnreadableError):
        wire.decode(msgpack.packb(facts | {field: value}))


@pytest.mark.parametrize("field", sorted(BAD))
def test_a_missing_field_is_refused(field: str) -> None:
    facts = msgpack.unpackb(wire.encode(batch(0, [1, 2])))
    del facts[field]
    with pytest.raises(UnreadableError):
        wire.decode(msgpack.packb(facts))


def test_what_is_no_number_is_refused_after_one_that_is_equal() -> None:
    facts = msgpack.unpackb(wire.encode(batch(0, [1], epoch=1)))
    assert wire.decode(msgpack.packb(facts)).connection.epoch == 1
    for value in (True, 1.0):
        with pytest.raises(UnreadableError, match="expected a number of at least 0"):
            wire.decode(msgpack.packb(facts | {"epoch": value}))


def test_poses_of_another_number_of_joints_are_refused() -> None:
    facts = msgpack.unpackb(wire.encode(batch(0, [2], skeleton=STEP18)))
    with pytest.raises(UnreadableError, match="2 people of 17 joints"):
        wire.decode(msgpack.packb(facts | {"skeleton": "coco17"}))


@given(data=st.data())
def test_whatever_arrives_is_a_batch_or_unreadable(data: st.DataObject) -> None:
    sent = wire.encode(batch(0, [1, 2]), data.draw(st.sampled_from(["f4", "f2"])))
    kind = data.draw(st.sampled_from(["random", "cut", "flipped"]))
    if kind == "random":
        got = data.draw(st.binary(max_size=200))
    elif kind == "cut":
        got = sent[: data.draw(st.integers(0, len(sent) - 1))]
    else:
        at = data.draw(st.integers(0, len(sent) - 1))
        got = sent[:at] + bytes([data.draw(st.integers(0, 255))]) + sent[at + 1 :]
    for read in (wire.decode, wire.decode_event):
        with suppress(UnreadableError):
            read(got)


@pytest.mark.parametrize("data", [bytes(10_000_000), b"\x91" * 100_000, b"\x90", b"", b"\xc1"])
def test_large_deep_and_empty_messages_are_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableError):
        wire.decode(data)


def test_a_confidence_too_large_to_be_squared_is_unreadable_without_a_warning() -> None:
    facts = msgpack.unpackb(wire.encode(batch(0, [1])))
    facts["confidence"] = np.full(17, 3e38, "<f4").tobytes()
    with pytest.raises(UnreadableError, match="finite joints"):
        wire.decode(msgpack.packb(facts))


def test_too_large_a_batch_is_not_sent() -> None:
    with pytest.raises(DataError, match="at most 1000000 bytes"):
        wire.encode(batch(0, [3000, 3000]))


def test_an_event_comes_out_as_it_went_in() -> None:
    before, after = record(), record().ended("calm", 2000.0)
    told = wire.decode_event(wire.encode_event("north", "end", before, after))
    assert told is not None
    assert (told.site, told.kind, told.before, told.after) == ("north", "end", before, after)
    assert wire.decode_event(wire.encode_claim("w1")) is None


def test_an_event_without_a_version_is_read_and_a_newer_one_is_unreadable() -> None:
    facts = json.loads(wire.encode_event("north", "new", None, record()))
    assert facts.pop("version") == 1
    told = wire.decode_event(json.dumps(facts).encode())
    assert told is not None
    assert told.after == record()
    for newer in (facts | {"version": 2}, facts | {"after": facts["after"] | {"schema": 2}}):
        with pytest.raises(UnreadableError, match="expected version 1, got 2"):
            wire.decode_event(json.dumps(newer).encode())


@pytest.mark.parametrize(
    "facts", [None, [], {}, {"type": "old"}, {"type": "new", "site": "a", "before": {}, "after": 1}]
)
def test_what_is_no_event_is_unreadable(facts: Any) -> None:
    with pytest.raises(UnreadableError):
        wire.decode_event(json.dumps(facts).encode())


@given(NAMES)
def test_names_are_one_part_of_a_subject_and_come_back(name: str) -> None:
    part = escaped(name)
    assert not set(part) & set(". *>\t\r\n")
    assert Subjects().site_of(f"stepvad.edge-events.{part}") == name


def test_a_camera_keeps_its_shard_for_ever() -> None:
    assert [Subjects().shard("north", f"cam{i}") for i in range(4)] == [11, 29, 39, 49]
    assert Subjects().poses("north", "cam 0.5").startswith("stepvad.poses.")
    assert Subjects().poses("north", "cam 0.5").endswith(".north.cam%200%2E5")
