"""Cameras whose devices publish poses: messages, what a site reads of them, and kills."""

from __future__ import annotations

import asyncio
import json
import math
import random
import runpy
import shutil
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from nats.js import JetStreamContext
from nats.js.api import ClusterInfo, StreamInfo

import stepvad.fleet
from stepvad.errors import DataError
from stepvad.fleet import poses, streams
from stepvad.fleet.connection import ConnectionThread, UnavailableError
from stepvad.fleet.poses import PoseReader, decode, encode
from stepvad.poses import Pose
from stepvad.site.frames import CameraStates, FrameQueues, Lost, QueuedFrame
from stepvad.site.stages import Supervisor
from stepvad.site.status import LiveStatus
from stepvad.site.store.positions import Position
from tests.fleet.played import Differences, Played, compare, publishing
from tests.fleet.servers import Broker, broker_settings, cluster, set_up
from tests.processes import ROOT
from tests.site.sites import Running, Unit
from tests.video.servers import SLOWER, wait_until

EPOCH, RATE, SIZE = 1_700_000_000_000, 10.0, (640, 480)
KILLS, STARTED = 4, "is watching"
SCHEMA = json.loads((Path(stepvad.fleet.__file__).parent / "poses.schema.json").read_text())


def pose(id: int = 1, x: float = 100.0) -> Pose:
    return Pose(id, np.full((17, 2), x, np.float32), np.full(17, 0.5, np.float32))


def message(frame: int = 0, *people: Pose, epoch: int = EPOCH, rate: float = RATE) -> bytes:
    as_json = frame % 2 == 1
    return encode(people, epoch=epoch, frame=frame, rate=rate, size=SIZE, as_json=as_json)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_frame_comes_out_as_it_went_in(as_json: bool) -> None:
    people = [pose(7, 12.25), pose(2**53 - 1, -3.5)]
    data = encode(people, epoch=EPOCH, frame=3, rate=12.5, size=SIZE, as_json=as_json)
    told, found = decode(data)
    assert (told.epoch, told.frame, told.rate, told.size) == (EPOCH, 3, 12.5, SIZE)
    assert [one.track_id for one in found] == [7, 2**53 - 1]
    for one, other in zip(found, people, strict=True):
        assert one.keypoints.tobytes() == other.keypoints.tobytes()
        assert one.confidence.tobytes() == other.confidence.tobytes()
    plain = msgspec.msgpack.decode(message(0, pose(1, 3.0)))
    assert plain["people"][0]["keypoints"] == struct.pack("<51f", *[3.0, 3.0, 0.5] * 17)


VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, "coco17", "", True, -1, 0, 1, 0.05, 0.5, 241, 2**53, 2**70, 1e7, -1.1e7, [], {}),
        *([640, 480], [0, 480], [1.5, 2], [640, 480, 1], [{"id": 1}], [{"id": 1}] * 257),
        *([[1, 2, 0.5]] * 17, [[1, 2, 1.5]] * 17, [[1, "2", 0.5]] * 17, [[1, 2]] * 17),
        [[1, 2, 0.5]] * 16,
    ]
)


@st.composite
def documents(draw: st.DrawFn) -> Any:
    """A message of which one field may be missing or have another value, in a person as well."""
    whole = json.loads(message(1, pose(), pose(2)))
    places: list[Any] = [whole, whole["people"][0], whole["people"][1]]
    place = draw(st.sampled_from(places))
    key = draw(st.sampled_from([*place, "unknown"]))
    match draw(st.sampled_from(["as it is", "missing", "other", "other"])):
        case "missing":
            place.pop(key, None)
        case "other":
            place[key] = draw(VALUES)
    return draw(st.sampled_from([whole, whole, whole, [whole]]))


@given(documents())
def test_a_site_takes_what_the_schema_describes_in_both_encodings(document: Any) -> None:
    is_valid = Draft202012Validator(SCHEMA).is_valid(document)
    for data in (json.dumps(document).encode(), _packed(document)):
        if data is None:
            continue
        try:
            decode(data)
        except DataError:
            assert not is_valid
        else:
            assert is_valid


def _packed(document: Any) -> bytes | None:
    try:
        return msgspec.msgpack.encode(document)
    except OverflowError:
        return None


ONE = json.loads(message(1, pose()))["people"][0]


@pytest.mark.parametrize(
    ("field", "last", "beyond"),
    [
        ("people", [ONE] * 256, [ONE] * 257),
        ("people", [ONE | {"id": 2**53 - 1}], [ONE | {"id": 2**53}]),
        ("people", [ONE | {"keypoints": [[1e7, -1e7, 1]] * 17}], [ONE | {"keypoints": []}]),
        ("epoch", 253_402_300_799_000, 253_402_300_799_001),
        ("frame", 10**10, 10**10 + 1),
        ("rate", 240, 240.5),
        ("rate", 0.1, 0.09),
        ("size", [65_535, 1], [65_536, 1]),
        ("size", [1, 1], [1, 0]),
    ],
)
def test_the_schema_and_the_site_have_the_same_limits(field: str, last: Any, beyond: Any) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    whole = json.loads(message(1))
    good, bad = whole | {field: last}, whole | {field: beyond}
    assert Draft202012Validator(SCHEMA).is_valid(good)
    assert not Draft202012Validator(SCHEMA).is_valid(bad)
    for pack in (json.dumps, msgspec.msgpack.encode):
        decode(_bytes(pack(good)))
        with pytest.raises(DataError):
            decode(_bytes(pack(bad)))


def _bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e8])
@pytest.mark.parametrize("at", [0, 2])
def test_numbers_that_are_none_are_refused(value: float, at: int) -> None:
    plain = msgspec.msgpack.decode(message(0, pose()))
    numbers = [1.0] * 51
    numbers[at] = value
    triplets = [numbers[first : first + 3] for first in range(0, 51, 3)]
    for keypoints in (struct.pack("<51f", *numbers), triplets):
        plain["people"][0]["keypoints"] = keypoints
        with pytest.raises(DataError, match="poses: expected"):
            decode(msgspec.msgpack.encode(plain))


def test_what_is_cut_off_too_short_or_nested_too_deeply_is_refused() -> None:
    whole = message(0, pose())
    base64 = json.loads(message(1, pose()))
    base64["people"][0]["keypoints"] = "A" * 272
    bad = [b"", whole[:-1], b"{", b"[" * 100_000, b"\xc1", b"\x91" * 100_000]
    for data in (*bad, json.dumps(base64).encode(), message(1, pose())[:-1]):
        with pytest.raises(DataError, match="poses: expected"):
            decode(data)


def test_a_device_cannot_send_what_a_site_would_refuse() -> None:
    with pytest.raises(DataError, match="rate"):
        message(0, rate=0.0)
    with pytest.raises(DataError, match="people"):
        message(0, *map(pose, range(257)))


def test_results_of_other_programs_become_messages() -> None:
    """The shapes of DeepStream's message converter and of AlphaPose."""
    example = runpy.run_path(str(ROOT / "examples" / "publish_poses.py"))
    points = [
        {"name": "left-shoulder", "coordinates": [10.0, 20.0, 0.0, 0.9]},
        {"name": "nose", "coordinates": [5.0, 6.0], "confidence": 0.25},
        {"name": "pelvis", "coordinates": [1.0, 2.0, 0.0, 0.9]},
    ]
    person = {"id": "42", "bbox": {}, "pose": {"type": "pose2D", "keypoints": points}}
    frame = {"version": "4.0", "id": "9", "objects": [person, {"id": "7", "bbox": {}}]}
    (found,) = example["from_line"](json.dumps(frame))
    assert found.track_id == 42
    assert found.keypoints[[5, 0]].tolist() == [[10.0, 20.0], [5.0, 6.0]]
    assert found.confidence[[5, 0, 1]].tolist() == pytest.approx([0.9, 0.25, 0.0])
    keypoints = [float(n) for joint in range(26) for n in (joint, 2 * joint, 1.02)]
    (found,) = example["from_line"](json.dumps([{"idx": 3, "keypoints": keypoints, "score": 2}]))
    assert (found.track_id, found.keypoints[16].tolist()) == (3, [16.0, 32.0])
    assert found.confidence.max() == 1.0
    message(0, found)


@dataclass(eq=False)
class Reading:
    """What reads the poses of a site's cameras, without what scores them."""

    status: LiveStatus
    frames: FrameQueues
    connection: ConnectionThread
    found: list[QueuedFrame | Lost] = field(default_factory=list)

    def publish(self, *data: bytes, camera: str = "a") -> list[int]:
        """Have the stream keep some messages, also while the connection comes back."""
        subject, numbers = streams.poses("yard", camera), list[int]()
        while len(numbers) < len(data):
            one = data[len(numbers)]
            try:
                numbers.append(
                    self.connection.ask(lambda broker, one=one: broker.publish(subject, one), 10.0)  # type: ignore[misc]
                )
            except UnavailableError:
                time.sleep(0.1)
        return numbers

    def take(self) -> None:
        while items := self.frames.next(0.0):
            self.found += [item for camera, item in items if camera == "door"]

    def has(self, n: int) -> Callable[[], bool]:
        def is_there() -> bool:
            self.take()
            return len(self.found) >= n

        return is_there

    def wait_for(self, n: int, limit_s: float = 10 * SLOWER) -> list[tuple[int, bool] | str]:
        """The numbers of the next `n` frames, and whether they are replayed; or what ended."""

        wait_until(self.has(n), limit_s)
        found, self.found = self.found[:n], self.found[n:]
        return [one.by if isinstance(one, Lost) else (one.slot, one.is_replayed) for one in found]

    def count(self, name: str) -> int:
        (camera, *_) = self.status.snapshot().cameras
        return camera.counts[name]  # type: ignore[index]


@contextmanager
def reading(server: Broker, position: Position | None = None) -> Iterator[Reading]:
    status = LiveStatus()
    for name in ("door", "gate"):
        status.camera(name, rate=RATE, threshold=1.0, model="m", zones={})
    frames = FrameQueues(["door", "gate"], status)
    connection = ConnectionThread(broker_settings([server]), "yard")
    positions = {} if position is None else {"door": position}
    reader = PoseReader(connection, site="yard")
    cameras = {"door": "a", "gate": "b"} if position is None else {"door": "a"}
    stage = reader.stage(cameras, positions, frames, CameraStates(status, frames))
    supervisor = Supervisor()
    supervisor.start(stage)
    try:
        yield Reading(status, frames, connection)
    finally:
        left = supervisor.stop([stage], 20)
        connection.close()
    assert left == []


def test_frames_come_in_order_each_once_and_bad_messages_are_counted(
    fleet: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with reading(fleet) as site:
        told = [message(frame) for frame in (0, 2, 2, 1, 3)]
        site.publish(told[0], b"{}", *told[1:3], b"nonsense", *told[3:])
        assert site.wait_for(3) == [(0, False), (2, False), (3, False)]
        assert (site.count("skipped"), site.count("shed")) == (4, 0)
    assert caplog.text.count("camera door: poses: expected a message") == 1, "once a minute"


def test_another_epoch_another_rate_and_a_long_hole_start_connections(fleet: Broker) -> None:
    with reading(fleet) as site:
        later = int(RATE * 29)
        site.publish(message(0), message(200), message(200 + later))
        site.publish(message(0, epoch=EPOCH + 1), message(9000), message(1, epoch=EPOCH + 1))
        site.publish(message(2, epoch=EPOCH + 1, rate=20.0))
        found = list[QueuedFrame]()
        wait_until(site.has(6))
        found = [one for one in site.found if isinstance(one, QueuedFrame)]
        connections = [one.connection for one in found]
        assert [connections.index(one) for one in connections] == [0, 0, 2, 3, 3, 5]
        assert [one.epoch for one in found] == [EPOCH] * 3 + [EPOCH + 1] * 3
        assert [one.wall0 for one in found[::3]] == [EPOCH / 1000, (EPOCH + 1) / 1000]
        assert site.count("skipped") == 1, "the late frame of the former epoch"


def test_no_frame_is_dropped_while_scoring_is_busy(fleet: Broker) -> None:
    with reading(fleet) as site:
        site.publish(*(message(frame) for frame in range(250)))
        wait_until(lambda: site.frames.size() == 8)
        time.sleep(1.5)
        assert site.frames.size() == 8
        assert site.wait_for(250) == [(frame, False) for frame in range(250)]
        assert site.count("shed") == 0


def position(**changes: Any) -> Position:
    facts: dict[str, Any] = {"camera": "door", "connection": 1, "epoch": EPOCH, "former": -1}
    facts |= {"rate": RATE, "done": 6, "first": 4, "seq": 5, "state": None}
    return Position(**(facts | changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [(4, True), (5, True), (6, True), (7, False)]),
        ({"connection": None}, [(7, False)]),
        ({"first": 3}, ["interrupted", (4, True), (5, True), (6, True), (7, False)]),
        ({"seq": 500}, ["interrupted", (4, True), (5, True), (6, True), (7, False)]),
    ],
)
def test_a_camera_goes_on_from_its_position_or_begins_anew(
    fleet: Broker, changes: dict[str, int | None], expected: list[Any]
) -> None:
    with reading(fleet) as site:
        assert site.publish(*(message(frame) for frame in range(8)))[-1] == 8
    with reading(fleet, position(**changes)) as site:
        assert site.wait_for(len(expected)) == expected


def test_a_broker_that_forgets_its_stream_costs_no_later_frame(fleet: Broker) -> None:
    with reading(fleet) as site:
        site.publish(*(message(frame) for frame in range(5)))
        assert len(site.wait_for(5)) == 5
        fleet.kill()
        fleet.start()
        asyncio.run(set_up([fleet]))
        site.publish(*(message(frame) for frame in range(5, 15)))
        wait_until(site.has(10))
        found = [one for one in site.found if isinstance(one, QueuedFrame)]
        assert [one.slot for one in found] == [*range(5, 15)]
        assert {one.connection for one in found} == {1}, "nothing was lost: the connection goes on"


def test_a_message_that_is_missing_is_read_again(
    fleet: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = streams.Reader._take

    async def lossy(self: streams.Reader, message: Any) -> None:
        if message.subject == self._inbox or random.random() > 0.03:
            await real(self, message)

    monkeypatch.setattr(streams.Reader, "_take", lossy)
    random.seed(3)
    with reading(fleet) as site:
        site.publish(*(message(frame) for frame in range(100)))
        assert site.wait_for(100, 30 * SLOWER) == [(frame, False) for frame in range(100)]
    assert "got a gap" in caplog.text


@pytest.mark.slow
def test_a_silent_device_is_offline_but_not_while_the_broker_is_away(
    fleet: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poses, "SILENT_S", 8.0)
    with reading(fleet) as site:
        site.publish(message(0))
        assert site.wait_for(1) == [(0, False)]
        fleet.kill()
        time.sleep(9.0)
        site.take()
        assert site.found == []
        assert site.status.snapshot().cameras[0].state == "online"
        fleet.start()
        asyncio.run(set_up([fleet]))
        assert wait_until(site.has(1)) > 6.0, "the silence counts from now on"
        assert site.wait_for(1) == ["camera lost"]
        door = site.status.snapshot().cameras[0]
        assert (door.state, door.reason) == ("offline", "its device has sent no poses for 8 s")
        site.publish(message(1))
        assert site.wait_for(1) == [(1, False)]
        assert site.status.snapshot().cameras[0].state == "online"


@pytest.mark.slow
def test_no_device_is_silent_while_the_brokers_have_no_majority(
    fleet: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(poses, "SILENT_S", 1.5)
    real, leaders = JetStreamContext.stream_info, deque(["", "n1"])

    async def stream_info(*words: Any) -> StreamInfo:
        return replace(await real(*words), cluster=ClusterInfo(leader=leaders[0]))

    monkeypatch.setattr(JetStreamContext, "stream_info", stream_info)
    with reading(fleet) as site:
        site.publish(message(0))
        assert site.wait_for(1) == [(0, False)]
        wait_until(lambda: "expected a leader of the stream" in caplog.text)
        time.sleep(4.0)
        site.take()
        assert site.found == []
        leaders.popleft()
        assert site.wait_for(1) == ["camera lost"]


@pytest.mark.slow
@pytest.mark.parametrize("keeps_disk", [True, False])
def test_a_site_killed_in_the_middle_of_events_makes_the_same_ones(
    tmp_path: Path, keeps_disk: bool
) -> None:
    epoch, rng = int(1000 * time.time()) - 60_000, random.Random(7)
    played = Played(site="yard", cameras=6, seconds=26.0, epoch=epoch, threshold=1.5)
    with cluster(tmp_path / "brokers") as brokers:
        asyncio.run(set_up(brokers))
        addresses = [one.address for one in brokers]
        expected = played.events()
        path = played.settings(addresses, tmp_path)
        with Running(path, unit=Unit(restart_s=1.0)) as site:
            wait_until(lambda: site.log.read_text().count(STARTED) == 1)
            with publishing(played, addresses) as device:
                for kill in range(1, KILLS + 1):
                    # the next event since the last start has begun, and may be over soon
                    log, since = site.log, site.log.stat().st_size
                    wait_until(lambda log=log, at=since: ": new (" in log.read_text()[at:])  # type: ignore[misc]
                    time.sleep(rng.uniform(0.0, 1.0))
                    site.service.process.kill()
                    site.service.process.wait()
                    if not keeps_disk:
                        shutil.rmtree(site.data)
                    if kill == 2:
                        brokers[1].kill()
                    wait_until(lambda log=log, n=kill: log.read_text().count(STARTED) > n)  # type: ignore[misc]
                    if kill == 2:
                        brokers[1].start()
                assert device.wait(60 * SLOWER) == 0

            def differences() -> Differences:
                return compare(expected, {one.id: one for one in site.events()})

            with suppress(AssertionError):
                wait_until(lambda: not differences(), 20 * SLOWER)
            assert not differences(), site.log.read_text()
    assert len(expected) >= 6
