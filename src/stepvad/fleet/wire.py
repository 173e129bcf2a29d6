"""Message formats on the bus: frames with poses as msgpack, events as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import lt
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from stepvad.codec import check_version, from_plain, to_plain
from stepvad.errors import DataError
from stepvad.events.record import Record, SinkMessage, message
from stepvad.events.rules import ChangeKind
from stepvad.poses import MAX_COORDINATE, MAX_FPS, MAX_FRAME, Pose
from stepvad.skeletons import BUILT_IN, COCO17, Skeleton

MAJOR, MINOR = 1, 1
EVENT_VERSION = 1
"""Version of event messages; those without a version use this one."""
MAX_BYTES = 1_000_000
"""Size limit of one message; decoding it blocks the reader."""
MAX_FRAMES = 1024
"""Most frames in one message."""
MAX_CONFIDENCE = 1e30
MAX_NAME = 128
"""Most characters of the name of a site or a camera."""
ABSENT = np.finfo(np.float16).min
"""Marks a joint that was not detected, at (0, 0), in half precision."""

CoordinatePrecision = Literal["f4", "f2"]
PRECISIONS = {name: np.dtype(f"<{name}") for name in get_args(CoordinatePrecision)}


class UnreadableError(DataError):
    """A malformed message, or one of another major version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraConnection:
    """Header shared by all frames of one connection of one camera."""

    site: str
    camera: str
    epoch: int
    """Number of the connection, unique for this camera."""
    wall0: float
    """Wall-clock time of slot 0."""
    rate: float
    """Time slots per second."""
    size: tuple[int, int]
    """Width and height of the image."""
    skeleton: Skeleton = COCO17

    @property
    def name(self) -> str:
        """The camera as `site/camera`."""
        return f"{self.site}/{self.camera}"


@dataclass(slots=True, eq=False, kw_only=True)  # not frozen: one is created per message
class Batch:
    """Consecutive frames of a connection; `lost` marks its end.

    `slots` and `people` hold the time slot and the number of people of each frame; `tracks (P,)`,
    `keypoints (P, V, 2)` in pixels and `confidence (P, V)` are concatenated frame by frame.
    """

    connection: CameraConnection
    seq: int
    """Frames of the connection before this batch; for a lost camera, the total."""
    slots: Sequence[int]
    people: Sequence[int]
    tracks: NDArray[np.int32]
    keypoints: NDArray[np.float32]
    confidence: NDArray[np.float32]
    lost: str | None = None
    """Reason the connection ended."""

    def __len__(self) -> int:
        """Number of frames."""
        return len(self.slots)

    @property
    def end(self) -> int:
        """The `seq` of the next batch."""
        return self.seq + len(self.slots)

    def poses(self, frame: int) -> list[Pose]:
        """Poses of the people in one frame, counted from 0."""
        first = sum(self.people[:frame])
        rows = range(first, first + self.people[frame])
        return [Pose(int(self.tracks[r]), self.keypoints[r], self.confidence[r]) for r in rows]

    def part(self, first: int, end: int) -> Batch:
        """Frames `first` to `end`, exclusive, counted from 0."""
        rows = slice(sum(self.people[:first]), sum(self.people[:end]))
        return Batch(
            connection=self.connection,
            seq=self.seq + first,
            slots=self.slots[first:end],
            people=self.people[first:end],
            tracks=self.tracks[rows],
            keypoints=self.keypoints[rows],
            confidence=self.confidence[rows],
        )


def batch_of(
    frames: Sequence[tuple[int, Sequence[Pose]]],
    connection: CameraConnection,
    seq: int,
    lost: str | None = None,
) -> Batch:
    """Build a batch of frames, each a slot with its poses."""
    poses = [pose for _, some in frames for pose in some]
    joints = connection.skeleton.V
    return Batch(
        connection=connection,
        seq=seq,
        slots=[slot for slot, _ in frames],
        people=[len(some) for _, some in frames],
        tracks=np.array([pose.track_id for pose in poses], dtype=np.int64).astype(np.int32),
        keypoints=_stack([pose.keypoints for pose in poses], (joints, 2)),
        confidence=_stack([pose.confidence for pose in poses], (joints,)),
        lost=lost,
    )


def encode(batch: Batch, precision: CoordinatePrecision = "f4") -> bytes:
    """Encode the batch; raise `DataError` if it exceeds the limits of `decode`."""
    import msgpack

    of = batch.connection
    if not 0 <= len(batch) <= MAX_FRAMES:
        raise DataError(f"camera {of.name}: expected up to {MAX_FRAMES} frames, got more")
    facts: dict[str, object] = {
        "v": [MAJOR, MINOR],
        "site": of.site,
        "camera": of.camera,
        "epoch": of.epoch,
        "wall0": of.wall0,
        "rate": of.rate,
        "size": of.size,
        "seq": batch.seq,
        "skeleton": of.skeleton.name,
        "precision": precision,
        "slots": batch.slots,
        "people": batch.people,
        "tracks": batch.tracks.astype("<i4").tobytes(),
        "confidence": _sure(batch.confidence, precision),
    }
    if precision == "f4":
        facts["keypoints"] = batch.keypoints.astype("<f4").tobytes()
    else:
        facts["origins"], facts["keypoints"] = _halved(batch.keypoints, batch.confidence)
    if batch.lost is not None:
        facts["lost"] = batch.lost
    data: bytes = msgpack.packb(facts)
    if len(data) > MAX_BYTES:
        raise DataError(
            f"camera {of.name}: expected at most {MAX_BYTES} bytes, got {len(data)}",
            hint="send fewer frames in one message",
        )
    return data


def decode(data: bytes) -> Batch:
    """Decode and validate a batch; raise `UnreadableError` if it is malformed."""
    if len(data) > MAX_BYTES:
        raise UnreadableError(f"poses: expected at most {MAX_BYTES} bytes, got {len(data)}")
    facts = _unpacked(data)
    version = facts.get("v")
    if not (isinstance(version, list) and version and version[0] == MAJOR):
        raise UnreadableError(
            f"poses: expected version {MAJOR}, got {str(version)[:40]}",
            hint="run the same major version at both ends",
        )
    try:
        return _batch(facts)
    except UnreadableError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise UnreadableError(f"poses: expected the fields of a batch, got: {error!r}") from None


def _batch(facts: dict[str, Any]) -> Batch:
    connection = _connection(
        facts["site"],
        facts["camera"],
        facts["epoch"],
        facts["wall0"],
        facts["rate"],
        *facts["size"],
        facts["skeleton"],
    )
    slots, people = facts["slots"], facts["people"]
    _check_frames(slots, people)
    n = sum(people)
    tracks = np.frombuffer(facts["tracks"], "<i4")
    if len(tracks) != n:
        raise UnreadableError(f"poses: expected {n} track numbers, got {len(tracks)}")
    keypoints, confidence = _joints(facts, n, connection.skeleton.V)
    lost = facts.get("lost")
    return Batch(
        connection=connection,
        seq=_count(facts["seq"], 2**53),
        slots=slots,
        people=people,
        tracks=tracks,
        keypoints=keypoints,
        confidence=confidence,
        lost=None if lost is None else str(lost)[:200],
    )


@lru_cache(maxsize=65_536, typed=True)  # validate its values once, not with every message
def _connection(*stated: Any) -> CameraConnection:
    """Validate the fields of a connection; they are positional to serve as the cache key."""
    site, camera, epoch, wall0, rate, width, height, joints = stated
    skeleton = BUILT_IN.get(joints)
    if skeleton is None:
        raise UnreadableError(f"poses: expected a known skeleton, got {joints!r:.40}")
    return CameraConnection(
        site=_name(site),
        camera=_name(camera),
        epoch=_count(epoch, 2**63),
        wall0=_number(wall0, 1e12),
        rate=_rate(rate),
        size=(_count(width, MAX_FRAME), _count(height, MAX_FRAME)),
        skeleton=skeleton,
    )


def _unpacked(data: bytes) -> dict[str, Any]:
    import msgpack

    try:
        facts = msgpack.unpackb(data)
    except Exception as error:  # msgpack raises many types; none may stop a worker
        raise UnreadableError(f"poses: expected msgpack, got: {type(error).__name__}") from None
    if not isinstance(facts, dict):
        raise UnreadableError(f"poses: expected a map, got {type(facts).__name__}")
    return facts


def _check_frames(slots: Any, people: Any) -> None:
    """Reject slots that do not increase and invalid numbers of people."""
    if not (isinstance(slots, list) and isinstance(people, list) and len(slots) == len(people)):
        raise UnreadableError("poses: expected one number of people per slot, got others")
    if len(slots) > MAX_FRAMES:
        raise UnreadableError(f"poses: expected up to {MAX_FRAMES} frames, got {len(slots)}")
    if not {*map(type, slots), *map(type, people)} <= {int}:
        raise UnreadableError("poses: expected whole numbers as slots and people, got others")
    if slots and not (slots[0] >= 0 and slots[-1] <= MAX_FRAME and min(people) >= 0):
        raise UnreadableError("poses: expected slots and people of at least 0, got less")
    if not all(map(lt, slots, slots[1:])):
        raise UnreadableError("poses: expected ascending slots, got others")
    if sum(people) > MAX_BYTES:
        raise UnreadableError("poses: expected fewer people, got more than a message holds")


def _joints(
    facts: dict[str, Any], n: int, joints: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    dtype = PRECISIONS.get(facts["precision"])
    if dtype is None:
        raise UnreadableError(f"poses: expected precision f4 or f2, got {facts['precision']!r:.40}")
    flat = np.frombuffer(facts["keypoints"], dtype)
    sure = np.frombuffer(facts["confidence"], dtype)
    if len(flat) != n * joints * 2 or len(sure) != n * joints:
        raise UnreadableError(
            f"poses: expected {n} people of {joints} joints, got {len(flat)} coordinates and "
            f"{len(sure)} confidences"
        )
    if dtype != np.float32:
        flat = _doubled(flat.reshape(n, joints, 2), np.frombuffer(facts["origins"], "<f4"))
        sure = sure.astype(np.float32)
    if not (_is_within(flat, MAX_COORDINATE) and _is_within(sure, MAX_CONFIDENCE)):
        raise UnreadableError("poses: expected finite joints, got NaN or infinity")
    return flat.reshape(n, joints, 2), sure.reshape(n, joints)


def _is_within(flat: NDArray[np.float32], most: float) -> bool:
    """Whether no absolute value exceeds `most`; tries the fast sum of squares first."""
    # NaN compares false; of numpy's dot products only vdot does not warn of an overflow
    square = float(np.vdot(flat, flat))
    return square <= most**2 or bool(np.abs(flat).max(initial=0) <= most)


def _sure(confidence: NDArray[np.float32], precision: CoordinatePrecision) -> bytes:
    """Encode confidences: NaN becomes 0, and values are clipped to the precision's range."""
    most = np.float32(np.finfo(np.float16).max if precision == "f2" else MAX_CONFIDENCE / 10)
    some = np.clip(np.nan_to_num(confidence, nan=0.0), -most, most)
    return some.astype(f"<{precision}").tobytes()


def _halved(keypoints: NDArray[np.float32], confidence: NDArray[np.float32]) -> tuple[bytes, bytes]:
    """Encode offsets from each person's centre in half precision.

    The error is some hundredths of a pixel.
    """
    absent = (keypoints == 0).all(axis=-1) & ~(confidence > 0)
    found = np.maximum((~absent).sum(axis=1, keepdims=True), 1)
    origins = np.where(absent[..., None], 0, keypoints).sum(axis=1) / found
    offsets = np.clip(keypoints - origins[:, None], -60_000, 60_000)
    offsets[absent] = ABSENT
    return origins.astype("<f4").tobytes(), offsets.astype("<f2").tobytes()


def _doubled(offsets: NDArray[np.float16], origins: NDArray[np.float32]) -> NDArray[np.float32]:
    absent = offsets == ABSENT
    keypoints = offsets.astype(np.float32) + origins.reshape(-1, 1, 2)
    keypoints[absent] = 0
    return cast("NDArray[np.float32]", keypoints.reshape(-1))


def _name(value: Any) -> str:
    if not (isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()):
        raise UnreadableError(f"poses: expected a name, got {str(value)[:40]!r}")
    return value


def _count(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value < most:
        raise UnreadableError(f"poses: expected a number of at least 0, got {str(value)[:40]}")
    return value


def _number(value: Any, most: float) -> float:
    if type(value) not in (int, float) or not abs(value) <= most:
        raise UnreadableError(f"poses: expected a number, got {str(value)[:40]}")
    return float(value)


def _rate(value: Any) -> float:
    rate = _number(value, MAX_FPS)
    if not rate > 0:
        raise UnreadableError(f"poses: expected a rate above 0, got {rate}")
    return rate


def _stack(arrays: Iterable[NDArray[np.float32]], shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.array([*arrays], dtype=np.float32).reshape(-1, *shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMessage:
    """A change of an event, as sent on the bus."""

    site: str
    kind: ChangeKind
    before: Record
    after: Record


def encode_event(site: str, kind: ChangeKind, before: Record | None, after: Record) -> bytes:
    """Encode a change of an event together with its site."""
    facts = to_plain(message(kind, before, after)) | {"site": site, "version": EVENT_VERSION}
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()


def encode_claim(worker: str) -> bytes:
    """Encode the claim of a worker that takes over a shard."""
    return json.dumps({"type": "claim", "worker": worker}).encode()


def decode_event(data: bytes) -> EventMessage | None:
    """Decode an event message, None for a claim; raise `UnreadableError` for anything else."""
    try:
        facts = json.loads(data)
        if not isinstance(facts, dict):
            raise UnreadableError(f"event: expected an event, got {type(facts).__name__}")
        if facts.get("type") == "claim":
            return None
        check_version("event", facts.get("version", 1), EVENT_VERSION)
        told = from_plain(SinkMessage, facts, "event")
        site = _name(facts.get("site"))
        return EventMessage(site=site, kind=told.type, before=told.before, after=told.after)
    except UnreadableError:
        raise
    except (DataError, ValueError, RecursionError) as error:
        raise UnreadableError(f"event: expected an event, got: {str(error)[:200]}") from None
