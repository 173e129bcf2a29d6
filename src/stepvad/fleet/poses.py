"""Cameras as subjects: devices publish the people of each frame, and a site reads them.

The stream keeps the messages for some minutes. A site acknowledges none: it keeps its own position
in its store, and reads from there on after a restart.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

# Loaded by the fleet alone, where a broker is spoken to.
from nats.aio.msg import Msg  # noqa: TID253
from nats.js.api import DeliverPolicy  # noqa: TID253

from stepvad.errors import DataError, StepvadError
from stepvad.events.camera import MOST_PEOPLE
from stepvad.fleet import streams
from stepvad.fleet.connection import (
    Connection,
    ConnectionThread,
    UnavailableError,
    translated,
)
from stepvad.poses import MAX_COORDINATE, Pose
from stepvad.retries import Backoff
from stepvad.site.frames import CameraStates, FrameQueues, QueuedFrame
from stepvad.site.stages import Loop, Repeats, Stage
from stepvad.site.store.positions import Position
from stepvad.skeletons import COCO17

logger = logging.getLogger(__name__)

SILENT_S, HOLE_S = 30.0, 28.0
"""A device that sends nothing for so long is offline; so many frames missing say the same later."""
WITHIN_S, DEADLINE_S, WAIT_S = 3.0, 30.0, 1.0
FIRST_RETRY_S, LONGEST_RETRY_S = 0.2, 3.0

V = COCO17.V
Coordinate = Annotated[float, Meta(ge=-MAX_COORDINATE, le=MAX_COORDINATE)]
Joint = tuple[Coordinate, Coordinate, Annotated[float, Meta(ge=0, le=1)]]
Listed = Annotated[list[Joint], Meta(min_length=V, max_length=V)]
Packed = Annotated[bytes, Meta(min_length=12 * V, max_length=12 * V)]
Side = Annotated[int, Meta(ge=1, le=65_535)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person in a frame; the id is that of the device's tracker."""

    id: Annotated[int, Meta(ge=0, le=2**53 - 1)]
    keypoints: Listed | Packed
    """x and y in pixels and confidence of each joint; in msgpack also as little-endian float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoseMessage:
    """One frame: the people in it, and when it was taken. `poses.schema.json` describes it."""

    epoch: Annotated[int, Meta(ge=0, le=253_402_300_799_000)]
    """Unix time in ms at which frame 0 was taken; another one after each start of the device."""
    frame: Annotated[int, Meta(ge=0, le=10**10)]
    rate: Annotated[float, Meta(ge=0.1, le=240)]
    """Frames per second; frame k was taken k / rate seconds after frame 0."""
    size: tuple[Side, Side]
    """Width and height of the picture."""
    people: Annotated[list[Person], Meta(max_length=MOST_PEOPLE)]
    skeleton: Literal["coco17"]


_json, _msgpack = msgspec.json.Decoder(PoseMessage), msgspec.msgpack.Decoder(PoseMessage)


def encode(
    poses: Sequence[Pose],
    *,
    epoch: int,
    frame: int,
    rate: float,
    size: tuple[int, int],
    as_json: bool = False,
) -> bytes:
    """Encode a frame of COCO-17 poses as a message, for devices; raise `DataError` if it is bad.

    Examples:
        >>> message = encode([], epoch=1_700_000_000_000, frame=0, rate=10.0, size=(640, 480))
        >>> decode(message)[0].frame
        0
    """
    people = []
    for pose in poses:
        xyc = np.column_stack((pose.keypoints, pose.confidence)).astype("<f4")
        people.append(
            Person(id=pose.track_id, keypoints=xyc.tolist() if as_json else xyc.tobytes())
        )
    facts: dict[str, Any] = {"epoch": epoch, "frame": frame, "rate": rate, "size": size}
    message = PoseMessage(**facts, people=people, skeleton="coco17")
    data = msgspec.json.encode(message) if as_json else msgspec.msgpack.encode(message)
    decode(data)  # what a site would refuse is not sent
    return data


def decode(data: bytes) -> tuple[PoseMessage, list[Pose]]:
    """Decode a message in JSON or msgpack, and its people; raise `DataError` if it is bad."""
    is_json = data[:1] in b"{ \t\r\n"
    try:
        message = _json.decode(data) if is_json else _msgpack.decode(data)
    except (ValueError, OverflowError, RecursionError) as error:
        problem = f"poses: expected a message as the schema describes, got: {error}"
        raise DataError(problem) from None
    xyc = np.zeros((len(message.people), V, 3), np.float32)  # x, y and confidence of each joint
    for joints, person in zip(xyc, message.people, strict=True):
        given = person.keypoints
        if is_json and isinstance(given, bytes):
            raise DataError("poses: expected keypoints as a list in JSON, got a text")
        joints[:] = np.frombuffer(given, "<f4").reshape(V, 3) if isinstance(given, bytes) else given
    # NaN fails every comparison
    is_placed = np.abs(xyc[..., :2]) <= np.float32(MAX_COORDINATE)
    is_sure = (xyc[..., 2] >= 0) & (xyc[..., 2] <= 1)
    if not (is_placed.all() and is_sure.all()):
        raise DataError(
            f"poses: expected finite coordinates up to {MAX_COORDINATE:g} and confidences from "
            "0 to 1, got others"
        )
    people = zip(message.people, xyc, strict=True)
    return message, [Pose(one.id, joints[:, :2], joints[:, 2]) for one, joints in people]


class PoseReader:
    """A site's poses: one consumer for all cameras, which waits while scoring has enough to do."""

    def __init__(self, connection: ConnectionThread, *, site: str) -> None:
        """`connection`: it is shared with the link, which closes it."""
        self._connection, self._site = connection, site
        self._repeats, self._backoff = Repeats(), Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)
        self._reader: streams.Reader | None = None
        self._created: datetime | None = None

    def stage(
        self,
        cameras: Mapping[str, str],
        positions: Mapping[str, Position],
        frames: FrameQueues,
        states: CameraStates,
    ) -> Stage:
        """The stage that queues the frames of cameras, by name and address, in order."""
        self._frames, self._states = frames, states
        self._cameras = {
            streams.poses(self._site, address): _Camera(name, positions.get(name), frames)
            for name, address in cameras.items()
        }
        self._next = min(one.start_from for one in self._cameras.values())
        """Sequence in the stream from which on messages are yet to come."""
        return Loop("poses", self._step, DEADLINE_S)

    def _step(self, loop: Loop) -> bool:
        """Queue the frames that have come."""
        try:
            messages = self._connection.ask(self._read, WITHIN_S, loop.stopping)
        except StepvadError as error:
            if loop.stopping.is_set():
                return False
            self._repeats.log(logger.warning, error.problem, "poses cannot be read: %s", error)
            for camera in self._cameras.values():  # it is not the device that is silent
                camera.heard_at = time.monotonic()
            loop.stopping.wait(self._backoff.next_s())
            return False
        self._backoff.reset()
        for message in messages:
            if loop.stopping.is_set():
                break
            self._next = message.metadata.sequence.stream + 1
            self._take(message, loop)
        if len(messages) < streams.BATCH:  # all that was sent so far has been heard
            self._look_for_silence()
        return False

    async def _read(self, broker: Connection) -> Sequence[Msg]:
        """The next messages, from where it was left if the broker was away or one is missing."""
        try:
            if self._reader is None:
                self._reader = streams.Reader(broker, streams.POSES, self._site)
                await self._open(broker, self._reader)
            messages = await self._reader.read()
            if not messages and self._is_quiet():
                await _check_leader(broker)
            return messages
        except BaseException:
            reader, self._reader = self._reader, None
            if reader is not None:
                await reader.aclose()
            raise

    async def _open(self, broker: Connection, reader: streams.Reader) -> None:
        """Begin at the next message, or at the oldest of a stream that is new."""
        with translated():
            stream = await broker.js.stream_info(streams.POSES)
        if self._next > stream.state.last_seq + 1 or self._created not in (None, stream.created):
            self._next = 1
            for camera in self._cameras.values():
                camera.forget_position()
        self._created = stream.created
        await reader.open(
            filter_subject=streams.poses(self._site, "*"),
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._next,
        )

    def _take(self, message: Msg, loop: Loop) -> None:
        """Queue the frame of a message; a bad one is counted and said once a minute."""
        camera = self._cameras.get(message.subject)
        if camera is None:
            what = "poses on %s are ignored: no camera of this site has that address"
            self._repeats.log(logger.warning, message.subject, what, message.subject)
            return
        try:
            frame = camera.take(message.data, message.metadata.sequence.stream)
        except DataError as error:
            self._frames.skip(camera.name)
            self._repeats.log(logger.warning, camera.name, "camera %s: %s", camera.name, error)
            return
        if frame is None:
            return
        if camera.is_online is not True:
            camera.is_online = True
            width, height = frame.size
            self._states.report(camera.name, "online", f"{width} x {height} pixels")
        # no frame is dropped: others wait in the stream meanwhile
        while not self._frames.wait_for_room(camera.name, WAIT_S):
            loop.heartbeat.beat()
            if loop.stopping.is_set():
                return
        self._frames.put(frame)

    def _is_quiet(self) -> bool:
        """True if a camera may soon count as silent."""
        latest = time.monotonic() - SILENT_S / 3
        return any(
            one.is_online is not False and one.heard_at < latest for one in self._cameras.values()
        )

    def _look_for_silence(self) -> None:
        now, why = time.monotonic(), f"its device has sent no poses for {SILENT_S:g} s"
        for camera in self._cameras.values():
            if camera.is_online is not False and now - camera.heard_at > SILENT_S:
                camera.forget_position()
                camera.is_online, camera.connection = False, None
                self._states.report(camera.name, "offline", why)


async def _check_leader(broker: Connection) -> None:
    """Raise if the stream takes no messages: brokers without a majority answer readers still."""
    with translated():
        cluster = (await broker.js.stream_info(streams.POSES)).cluster
    if cluster is not None and not cluster.leader:
        raise UnavailableError("broker: expected a leader of the stream of poses, got none")


class _Camera:
    """A camera on its way through the stream: its connection, and what comes next."""

    def __init__(self, name: str, position: Position | None, frames: FrameQueues) -> None:
        self.name, self._frames = name, frames
        self.is_online: bool | None = None
        """None: not known yet."""
        self.heard_at = time.monotonic()
        self.connection: int | None = None
        """Number in the stream of its first frame; None: the next frame starts one."""
        self._position, self._is_found = position, position is None
        self._expected, self.start_from = (0, 0, 0), 1
        self._epoch, self._former, self._latest, self._rate = -1, -1, -1, 0.0
        if position is not None:
            self.connection, self._rate = position.connection, position.rate
            self._epoch, self._former = position.epoch, position.former
            self._expected = position.seq, position.epoch, position.first
            self.start_from = position.seq
            # of a connection that goes on, some frames come again; of one that has ended, none
            goes_on = position.connection is not None
            self._latest = position.first - 1 if goes_on else position.done

    def take(self, data: bytes, seq: int) -> QueuedFrame | None:
        """The frame of a message; None if it is not needed, came before, or came too late."""
        if not self._is_found and seq < self.start_from:
            return None  # another camera needs what is older
        message, poses = decode(data)
        epoch, frame, rate, position = message.epoch, message.frame, message.rate, self._position
        if (seq, epoch, frame) != self._expected:
            self.forget_position()
        self._is_found = True
        is_done = position is not None and epoch == position.epoch and frame <= position.done
        if epoch == self._former or (epoch == self._epoch and frame <= self._latest):
            if not is_done:
                self._frames.skip(self.name)
            return None
        # a device that was restarted, another rate, or a long hole: nothing spans these
        if epoch != self._epoch:
            self._former, self._epoch, self.connection = self._epoch, epoch, None
        elif rate != self._rate or frame - self._latest > HOLE_S * rate:
            self.connection = None
        self.connection = seq if self.connection is None else self.connection
        self._latest, self._rate, self.heard_at = frame, rate, time.monotonic()
        return QueuedFrame(
            camera=self.name,
            connection=self.connection,
            rate=rate,
            wall0=epoch / 1000,
            slot=frame,
            arrived=self.heard_at,
            size=message.size,
            poses=poses,
            epoch=epoch,
            seq=seq,
            is_replayed=is_done,
        )

    def forget_position(self) -> None:
        """Begin anew if the first message is yet to come, or is another one than expected."""
        if not self._is_found:
            what = "camera %s: its stream no longer has the frames from which on it was to go on"
            logger.warning(what, self.name)
            self._frames.lose(self.name, "interrupted")
            self._is_found, self.connection = True, None
