"""Cameras of a simulated fleet: people who walk, as messages, at their pace.

python -m studies.simulated.cameras --server nats://127.0.0.1:4222 --cameras 100 --seconds 60
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepvad.evaluation.walkers import make_clips
from stepvad.fleet import wire
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.edge.directory import ASK_S, EdgeDirectory
from stepvad.fleet.moving import Moved
from stepvad.fleet.places import Place
from stepvad.fleet.settings import BusSettings
from stepvad.fleet.tasks import end

RATE = 10.0
SHARDS = 16
SITES = 10
EVENTFUL = 20
"""Something happens at one camera in so many."""
AGAIN_S = 8.0
"""What a camera that moves sends again, as edges do by default."""


@cache
def _walk() -> NDArray[np.float32]:
    track = max((t for c, _ in make_clips(2, seed=1) for t in c.tracks), key=len)
    return np.concatenate([track.keypoints, track.keypoints[::-1]])


class Camera:
    """A camera with people who walk; all eventful ones send the same poses, and all others."""

    def __init__(self, number: int, people: int, frames: int) -> None:
        self.number, self.people, self.frames = number, people, frames
        self.site, self.camera = f"site{number % SITES}", f"cam{number}"
        self.seq = 0
        """Frames sent so far."""
        self._facts: dict[str, Any] = {
            "v": [wire.MAJOR, wire.MINOR],
            "site": self.site,
            "camera": self.camera,
            "epoch": 1,
            "wall0": 1.7e9,
            "rate": RATE,
            "size": [1920, 1080],
            "skeleton": "coco17",
            "precision": "f4",
            "people": [people] * frames,
            "tracks": np.tile(np.arange(people, dtype="<i4"), frames).tobytes(),
            "confidence": np.full(people * frames * 17, 0.9, "<f4").tobytes(),
        }

    @property
    def is_eventful(self) -> bool:
        """Whether something happens here at times."""
        return self.number % EVENTFUL == 0

    def message(self) -> bytes:
        """Its next frames."""
        self.seq += self.frames
        return self.at(self.seq - self.frames)

    def at(self, first: int) -> bytes:
        """Its frames from a number on, as they are sent for the first time or again."""
        import msgpack

        walk = _walk()
        rows = np.add.outer(np.arange(first, first + self.frames), 13 * np.arange(self.people))
        poses = walk[rows.reshape(-1) % len(walk)]
        if self.is_eventful and first // 20 % 3 == 0:
            poses = poses + np.random.default_rng(first).normal(0, 60, poses.shape)
        self._facts |= {
            "seq": first,
            "slots": list(range(first, first + self.frames)),
            "keypoints": poses.astype("<f4").tobytes(),
        }
        data: bytes = msgpack.packb(self._facts)
        return data

    def without_frames(self, lost: str | None = None, *, moved: bool = False) -> bytes:
        """A message that tells what becomes of the connection."""
        of = wire.decode(self.at(0)).connection
        return wire.encode(wire.batch_of([], of, self.seq, lost, moved=moved))


class Sent(NamedTuple):
    """What cameras have sent."""

    messages: int
    """Of each camera."""
    frames: int
    """Of all cameras."""
    late_s: float
    """How far the cameras were behind their pace at the end."""
    moves: int
    """How often one of them went to another shard."""


@dataclass(slots=True, eq=False)
class Route:
    """One camera, and where it is sent."""

    bus: NatsBus
    camera: Camera
    directory: EdgeDirectory
    place: Place
    moved: Moved | None = None
    moves: int = 0

    async def send(self) -> None:
        """Send its next frames, to another shard if it has moved."""
        if self.directory.place(self.camera.camera) != self.place:
            await self._move()
        await self._publish(self.camera.message())

    async def lose(self) -> None:
        """Tell that the connection is over."""
        await self._publish(self.camera.without_frames("the run is over"))

    async def _move(self) -> None:
        """Tell the former shard and send the latest frames again to the new one."""
        one = self.camera
        await self._publish(one.without_frames(moved=True))
        self.place, self.moved = self.directory.place(one.camera), Moved(1, one.seq)
        self.moves += 1
        again = round(AGAIN_S * RATE) // one.frames * one.frames
        for first in range(max(one.seq - again, 0), one.seq, one.frames):
            await self._publish(one.at(first))

    async def _publish(self, data: bytes) -> None:
        subject = self.bus.subjects.poses(self.camera.site, self.camera.camera, self.place)
        headers = {} if self.moved is None else self.moved.headers
        await self.bus.client.publish(subject, data, headers=headers or None)


async def play(bus: NatsBus, cameras: list[Camera], seconds: float) -> Sent:
    """Send at the pace of the cameras; their sites ask in turn where to send."""
    directories = {c.site: EdgeDirectory(c.site, "", bus.subjects) for c in cameras}
    following = [
        asyncio.create_task(_follow(one, bus, ASK_S * i / len(directories)))
        for i, one in enumerate(directories.values())
    ]
    routes = [
        Route(bus, c, directories[c.site], directories[c.site].place(c.camera)) for c in cameras
    ]
    pause = cameras[0].frames / RATE
    started, sent = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        for i, route in enumerate(routes):
            due = started + (sent + i / len(routes)) * pause
            if (wait := due - time.monotonic()) > 0.002:
                await asyncio.sleep(wait)
            await route.send()
        sent += 1
    late_s = time.monotonic() - started - sent * pause
    for route in routes:
        await route.lose()
    await bus.client.flush(timeout=30)
    await end(*following)
    frames = sent * sum(camera.frames for camera in cameras)
    return Sent(sent, frames, late_s, sum(route.moves for route in routes))


async def _follow(directory: EdgeDirectory, bus: NatsBus, after_s: float) -> None:
    await asyncio.sleep(after_s)
    await directory.follow(bus)


async def _main(given: argparse.Namespace) -> None:
    settings = BusSettings(servers=given.server, shards=SHARDS)
    cameras = [Camera(i, given.people, given.message) for i in range(given.cameras)]
    async with connected(settings, "player") as bus:
        sent = await play(bus, cameras, given.seconds)
    sys.stdout.write(json.dumps(sent._asdict()) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", action="append", required=True)
    parser.add_argument("--cameras", type=int, default=100)
    parser.add_argument("--people", type=int, default=5)
    parser.add_argument("--message", type=int, default=10, help="frames in a message")
    parser.add_argument("--seconds", type=float, default=30.0)
    asyncio.run(_main(parser.parse_args()))
