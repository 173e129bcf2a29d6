"""Cameras of a simulated fleet: people who walk, as messages, at their pace.

python -m studies.simulated.cameras --server nats://127.0.0.1:4222 --cameras 100 --seconds 60
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepvad.evaluation.walkers import make_clips
from stepvad.fleet import wire
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.settings import BusSettings

RATE = 10.0
SHARDS = 16
SITES = 10
EVENTFUL = 20
"""Something happens at one camera in so many."""


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

    def lost(self) -> bytes:
        """A message that the connection is over."""
        of = wire.decode(self.at(0)).connection
        return wire.encode(wire.batch_of([], of, self.seq, "the run is over"))


class Sent(NamedTuple):
    """What cameras have sent."""

    messages: int
    """Of each camera."""
    frames: int
    """Of all cameras."""
    late_s: float
    """How far the cameras were behind their pace at the end."""


async def play(bus: NatsBus, cameras: list[Camera], seconds: float) -> Sent:
    """Send at the pace of the cameras."""
    subjects = [bus.subjects.poses(one.site, one.camera) for one in cameras]
    pause = cameras[0].frames / RATE
    started, sent = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        for i, (camera, subject) in enumerate(zip(cameras, subjects, strict=True)):
            due = started + (sent + i / len(cameras)) * pause
            if (wait := due - time.monotonic()) > 0.002:
                await asyncio.sleep(wait)
            await bus.client.publish(subject, camera.message())
        sent += 1
    late_s = time.monotonic() - started - sent * pause
    for camera, subject in zip(cameras, subjects, strict=True):
        await bus.client.publish(subject, camera.lost())
    await bus.client.flush(timeout=30)
    return Sent(sent, sent * sum(camera.frames for camera in cameras), late_s)


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
