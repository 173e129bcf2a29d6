"""Messages between child processes and the site: validated JSON and raw arrays.

Pixels are not among them: they are in buffers that the processes share (`frame_buffers.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Literal, get_args

import numpy as np
from msgspec import Meta

from stepvad import codec
from stepvad.codec import Count
from stepvad.errors import DataError
from stepvad.people import Boxes, LastPoses, People
from stepvad.site.status import CaptureState
from stepvad.video.source import MAX_PIXELS

MOST_SIDE = 16384
"""Largest side of an image in pixels."""
MOST_IMAGE_BYTES = 3 * MAX_PIXELS
"""Largest image: 8K."""
ImageSide = Annotated[int, Meta(ge=1, le=MOST_SIDE)]
Shape = tuple[ImageSide, ImageSide, Literal[3]]
PeopleCount = Annotated[int, Meta(ge=0, le=100_000)]


@dataclass(frozen=True, slots=True)
class StatusMessage:
    """State of a camera; `over` means nothing will follow."""

    state: CaptureState
    reason: str
    over: bool = False
    type: Literal["status"] = "status"


@dataclass(frozen=True, slots=True)
class ConnectionAttempt:
    """A capture process connects to its camera, once more or for the first time."""

    type: Literal["attempt"] = "attempt"


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """A capture process needs buffers for images of this size."""

    image_bytes: Annotated[int, Meta(ge=1, le=MOST_IMAGE_BYTES)]
    type: Literal["request"] = "request"


@dataclass(frozen=True, slots=True)
class PoolOffer:
    """A capture process may use these buffers; the descriptor of their memory follows."""

    pool: Count
    buffers: Annotated[int, Meta(ge=1)]
    buffer_bytes: Annotated[int, Meta(ge=1)]
    type: Literal["pool"] = "pool"


@dataclass(frozen=True, slots=True)
class FreedBuffers:
    """A capture process may use these buffers of its pool again."""

    pool: Count
    buffers: tuple[Count, ...]
    type: Literal["freed"] = "freed"


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """A frame of a camera, and the buffer that holds its image."""

    connection: Count
    wall0: float
    slot: Count
    arrived: float
    pool: Count
    buffer: Count
    shape: Shape
    shed: Count
    """Frames dropped since the last one because they were stale or no buffer was free."""
    skipped: Count
    """Frames skipped since the last one because their time slot was taken."""
    type: Literal["frame"] = "frame"


@dataclass(frozen=True, slots=True)
class Ready:
    """A pose worker has loaded its networks, or failed with `problem`."""

    problem: str = ""
    type: Literal["ready"] = "ready"


@dataclass(frozen=True, slots=True)
class PeopleHeader:
    """Header sent before the people of a batch of images."""

    people: tuple[PeopleCount | None, ...]
    """Number of people per image; None if the image failed."""
    joints: Annotated[int, Meta(ge=1, le=1000)]
    type: Literal["people"] = "people"


@dataclass(frozen=True, slots=True)
class ImagePlace:
    """Where an image is: which of the files sent with it, and from which byte on."""

    file: Count
    offset: Count
    shape: Shape


@dataclass(frozen=True, slots=True)
class ImagesHeader:
    """Header sent to a pose worker before the last poses and the files of a batch of images."""

    images: tuple[ImagePlace, ...]
    files: Count
    """Number of descriptors that follow."""
    last: tuple[PeopleCount, ...]
    """Number of people to look for, per image."""
    type: Literal["images"] = "images"

    def __post_init__(self) -> None:
        """Check the lengths."""
        if len(self.images) != len(self.last):
            raise ValueError(f"expected {len(self.images)} numbers of people, got {len(self.last)}")


Message = (
    StatusMessage
    | ConnectionAttempt
    | PoolRequest
    | PoolOffer
    | FreedBuffers
    | FrameHeader
    | Ready
    | PeopleHeader
    | ImagesHeader
)
_KINDS: dict[object, type[Message]] = {
    field.default: kind
    for kind in get_args(Message)
    for field in fields(kind)
    if field.name == "type"
}


@dataclass(frozen=True, slots=True)
class _Kind:
    """The field that all messages have."""

    type: str


def encode(message: Message) -> bytes:
    """Serialize a message."""
    return codec.encode(message)


def decode(data: bytes) -> Message:
    """Parse a message of a child process; raises DataError if it is invalid."""
    name = codec.decode(_Kind, data, "child process").type
    if name not in _KINDS:
        raise DataError(f"child process: expected one of its messages, got {name!r:.40}")
    return codec.decode(_KINDS[name], data, f"child process: {name}")


def encode_people(found: Sequence[People | None]) -> tuple[bytes, bytes]:
    """Serialize the people of a batch of images: header and people."""
    seen = [people for people in found if people is not None]
    joints = max((people.keypoints.shape[1] for people in seen if len(people)), default=17)
    header = PeopleHeader(tuple(None if p is None else len(p) for p in found), joints)
    parts = [
        part.tobytes()
        for people in seen
        if len(people)
        for part in (
            people.boxes.corners,
            people.boxes.scores,
            people.boxes.followed.astype(np.float32),
            people.keypoints,
            people.confidence,
        )
    ]
    return encode(header), b"".join(parts)


def decode_people(header: PeopleHeader, body: bytes) -> list[People | None]:
    """Parse and validate the people of a batch of images."""
    joints = header.joints
    each = 4 + 1 + 1 + 2 * joints + joints
    total = sum(n or 0 for n in header.people)
    if len(body) != 4 * each * total:
        raise DataError(f"pose worker: expected {4 * each * total} bytes, got {len(body)}")
    numbers, end = np.frombuffer(body, np.float32), 0
    found: list[People | None] = []
    for n in header.people:
        if n is None:
            found.append(None)
            continue
        part, end = numbers[end : end + each * n], end + each * n
        corners, scores, followed, keypoints, confidence = np.split(
            part, np.cumsum([4 * n, n, n, 2 * joints * n])
        )
        boxes = Boxes(corners.reshape(n, 4), scores, followed != 0)
        found.append(People(boxes, keypoints.reshape(n, joints, 2), confidence.reshape(n, joints)))
    return found


def encode_last_poses(
    images: Sequence[ImagePlace], last: Sequence[LastPoses]
) -> tuple[bytes, bytes]:
    """Serialize the people to look for in a batch of images: header and body."""
    files = 1 + max((image.file for image in images), default=-1)
    header = ImagesHeader(tuple(images), files, tuple(len(poses) for poses in last))
    rows = [np.column_stack([poses.corners, poses.diagonals]) for poses in last]
    return encode(header), np.concatenate(rows).astype(np.float32).tobytes()


def decode_last_poses(header: ImagesHeader, body: bytes) -> list[LastPoses]:
    """Parse and validate the people to look for in a batch of images."""
    total = sum(header.last)
    if len(body) != 4 * 5 * total:
        raise DataError(f"site: expected {4 * 5 * total} bytes, got {len(body)}")
    rows = np.frombuffer(body, np.float32).reshape(total, 5)
    parts = np.split(rows, np.cumsum(header.last)[:-1])
    return [LastPoses(part[:, :4], part[:, 4]) for part in parts]
