"""Child processes that die, hang, cannot be started or say the wrong thing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.people import NOBODY, Boxes, LastPoses, People
from stepvad.site import processes
from stepvad.site.intake.child_messages import (
    MOST_IMAGE_BYTES,
    FrameHeader,
    FreedBuffers,
    ImagePlace,
    ImagesHeader,
    PeopleHeader,
    PoolOffer,
    PoolRequest,
    Ready,
    StatusMessage,
    decode,
    decode_last_poses,
    decode_people,
    encode,
    encode_last_poses,
    encode_people,
)
from stepvad.site.processes import ChildPipe, ChildProcess, HungError, SupervisedProcess
from stepvad.site.stages import Supervisor
from tests.video.servers import SLOWER, wait_until


def echo(site: ChildPipe) -> None:
    """Says what it hears."""
    while True:
        site.send(site.receive())


def half_a_message(site: ChildPipe) -> None:
    """Begins a message and never ends it."""
    with site._lock:
        os.write(site._pipe.fileno(), b"\x00\x00\x10\x00half")
        time.sleep(60)


def exit_at_once(site: ChildPipe) -> None:
    os._exit(9)


def too_much(site: ChildPipe) -> None:
    """Announces a message of two gigabytes."""
    os.write(site._pipe.fileno(), b"\x7f\xff\xff\xff")
    time.sleep(60)


class Talk:
    """A client that asks its child to repeat words, and notes what happens."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.deaths: list[str] = []
        self.poison = False

    def serve(self, child: ChildProcess, stopping: threading.Event) -> bool:
        while not stopping.is_set():
            child.pipe.send_bytes(b"hello")
            if (answer := child.receive(0.5)) is not None:
                if self.poison:
                    self.poison = False
                    raise KeyError("a bug of ours")
                self.answers.append(answer)
            time.sleep(0.05)
        return True

    def died(self, reason: str) -> None:
        self.deaths.append(reason)


@pytest.fixture
def talk() -> Talk:
    return Talk()


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SILENT_S", 2.5)
    monkeypatch.setattr(processes, "TRANSFER_S", 1.0)


def more_answers(talk: Talk) -> bool:
    n = len(talk.answers)
    wait_until(lambda: len(talk.answers) > n, 20)
    return True


class Kept:
    """A child that is kept running for a test."""

    def __init__(self, talk: Talk, function: Any = echo) -> None:
        self.stage = SupervisedProcess("echo", "text", talk, function)
        self._supervisor = Supervisor()

    def __enter__(self) -> SupervisedProcess:
        self._supervisor.start(self.stage)
        return self.stage

    def __exit__(self, *error: object) -> None:
        assert self._supervisor.stop([self.stage], 20) == []


def test_a_child_that_is_killed_is_replaced(talk: Talk) -> None:
    with Kept(talk) as stage:
        assert more_answers(talk)
        pid = stage.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: stage.pid not in (None, pid), 20)
        assert more_answers(talk)
    assert talk.deaths == ["ended with code -9"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_child_that_is_stopped_is_replaced(talk: Talk, limits: None) -> None:
    with Kept(talk) as stage:
        assert more_answers(talk)
        pid = stage.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: bool(talk.deaths), 20)
        assert more_answers(talk)
    assert talk.deaths == ["silent for 2.5 s"]


def test_a_child_that_never_starts_is_replaced(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_S", 1.0)
    with Kept(talk) as stage:
        while stage.pid is None:
            time.sleep(0.001)
        os.kill(stage.pid, signal.SIGSTOP)  # before the interpreter has started
        wait_until(lambda: bool(talk.deaths), 20)
    assert talk.deaths[0] == "silent for 1 s"


def test_a_child_that_stops_within_a_message_is_replaced(talk: Talk, limits: None) -> None:
    with Kept(talk, half_a_message):
        wait_until(lambda: len(talk.deaths) >= 1, 20)


def test_a_message_that_is_too_large_is_not_waited_for(talk: Talk, limits: None) -> None:
    with Kept(talk, too_much):
        wait_until(lambda: len(talk.deaths) >= 1, 20)


def test_a_child_that_cannot_be_started_is_tried_again(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = subprocess.Popen, [3]

    class Scarce(real):  # type: ignore[valid-type,misc]  # the system's own, at times
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if left[0]:
                left[0] -= 1
                raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", Scarce)
    with Kept(talk):
        assert more_answers(talk)
    assert talk.deaths == ["could not be started: Resource temporarily unavailable"] * 3


def test_an_error_of_ours_while_talking_costs_one_child_and_not_the_stage(talk: Talk) -> None:
    talk.poison = True
    with Kept(talk):
        assert more_answers(talk)
    assert talk.deaths == ["KeyError"]


def test_a_child_that_dies_at_once_is_started_less_and_less_often(talk: Talk) -> None:
    with Kept(talk, exit_at_once):
        wait_until(lambda: len(talk.deaths) >= 4, 30)
        time.sleep(1.0)
        assert len(talk.deaths) < 10


def test_a_child_of_another_version_says_so(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PROTOCOL", 99)
    with Kept(talk):
        wait_until(lambda: bool(talk.deaths), 20)
    assert "another version of stepvad is installed now" in talk.deaths[0]


def test_a_child_that_ignores_its_end_is_ended_by_force(limits: None) -> None:
    child = ChildProcess("half", "text", half_a_message)
    wait_until(lambda: child.pipe.poll(0.1), 20)
    os.kill(child.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert child.stop(within_s=0.5) == -signal.SIGKILL
    assert time.monotonic() - began < 2 * SLOWER


def test_sending_to_a_child_that_does_not_read_has_a_limit(limits: None) -> None:
    child = ChildProcess("echo", "text", echo)
    child.receive(10.0)
    os.kill(child.pid, signal.SIGSTOP)
    with pytest.raises((OSError, HungError)):
        child.pipe.send_bytes(bytes(50_000_000))
    child.stop(within_s=0.5)


def test_messages_come_back_as_they_were_sent() -> None:
    header = FrameHeader(
        connection=1,
        wall0=1e9,
        slot=7,
        arrived=3.5,
        pool=1,
        buffer=5,
        shape=(2, 4, 3),
        shed=0,
        skipped=2,
    )
    for message in (
        StatusMessage("online", "4 x 2 pixels"),
        PoolRequest(24),
        PoolOffer(pool=1, buffers=11, buffer_bytes=4096),
        FreedBuffers(pool=1, buffers=(3, 0)),
        header,
        Ready("no network"),
    ):
        assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"\x80\x04\x95",
        b'{"type": "frame"}',
        b'{"type": "status", "state": "x", "reason": ""}',
        b'{"type": "frame", "connection": 0, "wall0": 0, "slot": 0, "arrived": 0, '
        b'"pool": 1, "buffer": 0, "shape": [100000, 100000, 3], "shed": 0, "skipped": 0}',
        b'{"type": "request", "image_bytes": %d}' % (MOST_IMAGE_BYTES + 1),
        b'{"type": "people", "people": [-1], "joints": 17}',
        b'{"type": "people", "people": [1], "joints": 1000000000}',
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(DataError):
        decode(data)


def test_a_pickle_from_a_child_is_not_loaded(talk: Talk) -> None:
    """A decoder that was taken over cannot run code in the site."""
    evil = b"\x80\x04\x95\x1c\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94"
    with pytest.raises(DataError):
        decode(evil)


def test_people_travel_as_numbers() -> None:
    rng = np.random.default_rng(0)

    def random(*shape: int) -> NDArray[np.float32]:
        return rng.random(shape, np.float32)

    def people(n: int) -> People:
        boxes = Boxes(random(n, 4), random(n), np.arange(n) % 2 == 1)
        return People(boxes, random(n, 17, 2), random(n, 17))

    sent = [people(2), None, people(0), people(1)]
    data, body = encode_people(sent)
    header = decode(data)
    assert isinstance(header, PeopleHeader)
    found = decode_people(header, body)
    assert [None if p is None else len(p) for p in found] == [2, None, 0, 1]
    for one, other in zip(sent, found, strict=True):
        if one is not None and other is not None:
            assert (one.keypoints == other.keypoints).all()
            assert (one.confidence == other.confidence).all()
            assert (one.boxes.corners == other.boxes.corners).all()
            assert (one.boxes.scores == other.boxes.scores).all()
            assert (one.boxes.followed == other.boxes.followed).all()
    with pytest.raises(DataError, match="expected"):
        decode_people(header, body[:-4])


def test_last_poses_travel_as_numbers() -> None:
    images = [ImagePlace(file=n // 2, offset=0, shape=(2, 4 + n, 3)) for n in range(3)]
    rows = np.arange(1, 11, dtype=np.float32).reshape(2, 5)
    sent = [LastPoses(rows[:1, :4], rows[:1, 4]), NOBODY, LastPoses(rows[1:, :4], rows[1:, 4])]
    data, body = encode_last_poses(images, sent)
    header = decode(data)
    assert isinstance(header, ImagesHeader)
    assert header.images == tuple(images)
    assert header.files == 2
    found = decode_last_poses(header, body)
    for one, other in zip(sent, found, strict=True):
        assert (one.corners == other.corners).all()
        assert (one.diagonals == other.diagonals).all()
    with pytest.raises(DataError, match="expected 40 bytes, got 36"):
        decode_last_poses(header, body[:-4])
    with pytest.raises(DataError, match="positive diagonals"):
        decode_last_poses(header, bytes(len(body)))
    with pytest.raises(DataError, match="expected 1 numbers of people, got 2"):
        decode(
            b'{"type":"images","images":[{"file":0,"offset":0,"shape":[2,4,3]}],'
            b'"files":1,"last":[1,2]}'
        )
