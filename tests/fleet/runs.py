"""Runs of a fleet with something that happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgpack
import numpy as np

from stepvad.fleet import wire
from stepvad.fleet.broker.nats import connected
from stepvad.fleet.settings import BusSettings
from stepvad.fleet.wire import Batch
from stepvad.poses import Clip
from tests.fleet.brokers import Broker, bus_settings
from tests.fleet.fleets import RATE, Heard, Player, Script, WorkerProcess, script, settled
from tests.fleet.quiet import Quiet

SPEED = 2.0
"""Clips are played so many times as fast as they were."""


@dataclass(frozen=True, slots=True)
class Run:
    heard: Heard
    player: Player
    windows: set[str]
    logs: str

    def latencies(self) -> list[float]:
        """From the frame that made an event new to its place in the stream."""
        found = []
        for told, at in zip(self.heard.told, self.heard.at, strict=True):
            if told.kind == "new":
                slot = told.after.frame_seq + round(0.4 * RATE)
                sent = self.player.sent_at.get((told.after.camera, told.after.epoch, slot))
                if sent is not None:
                    found.append(at - sent)
        return found


async def run(
    brokers: Sequence[Broker],
    workers: Sequence[WorkerProcess],
    scripts: Sequence[Script],
    expected: Quiet,
    fault: Callable[[], Awaitable[None]],
    **bus: object,
) -> Run:
    """Play scripts while a fault happens; what came of it."""
    settings = bus_settings(brokers, **bus)
    async with connected(settings, "player") as bus_:
        player = Player(bus_)
        await asyncio.gather(player.play(scripts), fault())
    ended = sum(kind == "end" for kind, _ in expected.changes)
    heard = await settled(settings, ended)
    windows = {
        line
        for one in workers
        if one.windows.exists()
        for line in one.windows.read_text().split("\n")
    }
    logs = "\n".join(one.log.read_text() for one in workers)
    return Run(heard, player, windows - {""}, logs)


def whole(windows: set[str]) -> set[str]:
    """Without a line that a kill cut off."""
    return {line for line in windows if len(line.rpartition(" ")[2]) == 40}


def several(scenes: list[Clip], n: int = 6, frames: int = 1) -> list[Script]:
    return [
        script(f"site{i % 2}/cam{i}", scenes[i % len(scenes)], frames=frames, speed=SPEED)
        for i in range(n)
    ]


def poison(sent: Batch) -> list[bytes]:
    good = wire.encode(sent)
    facts = msgpack.unpackb(good)
    nan = facts | {"keypoints": np.full(len(facts["keypoints"]) // 4, np.nan, "<f4").tobytes()}
    return [
        good[: len(good) // 2],
        msgpack.packb(nan),
        msgpack.packb(facts | {"skeleton": "step18"}),
        msgpack.packb(facts | {"v": [2, 0]}),
        bytes(10_000_000),
    ]


async def dead(settings: BusSettings) -> list[str]:
    """The sizes of the messages that were buried."""
    async with connected(settings, "asks") as bus:
        stream = bus.client.jetstream()
        facts = await stream.stream_info("DEAD")
        found = [
            await stream.get_msg("DEAD", seq)
            for seq in range(facts.state.first_seq, facts.state.last_seq + 1)
        ]
        return [(one.headers or {})["Stepvad-Size"] for one in found]
