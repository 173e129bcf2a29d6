"""What cameras send in a run of minutes, and a process that sends it.

python -m studies.simulated.long_scripts BUS.json SECONDS ACKS
"""

from __future__ import annotations

import asyncio
import math
import sys
from dataclasses import replace
from pathlib import Path

from stepvad.evaluation.walkers import make_clips
from stepvad.fleet.broker.nats import connected
from stepvad.fleet.settings import BusSettings
from tests.fleet.fleets import Player, Script, renumbered, script
from tests.fleet.results import record_publishing

CAMERAS = 6
CLIP_S = 12.5
FRAMES = 5
"""Frames in a message, as edges send them."""
AGAIN_S = 8.0
PLAYING = "playing"


def long_scripts(seconds: float, frames: int = 1) -> list[Script]:
    """Clips one after the other, each a connection of its own, some frames in each message."""
    clips = [clip for clip, _ in make_clips(CAMERAS, seed=5, seconds=12.0, anomalies=True)]
    found = []
    n = math.ceil(seconds / CLIP_S)
    for i in range(CAMERAS):
        parts = [
            script(
                f"site{i % 2}/cam{i}",
                renumbered(clips[(i + k) % CAMERAS], 1000 * (i * n + k + 1)),
                epoch=k + 1,
                frames=frames,
            )
            for k in range(n)
        ]
        messages = [(at + CLIP_S * k, b) for k, one in enumerate(parts) for at, b in one.messages]
        found.append(replace(parts[0], messages=tuple(messages)))
    return found


async def _play(settings: BusSettings, seconds: float) -> None:
    scripts = long_scripts(seconds, FRAMES)
    async with connected(settings, "player") as bus:
        sys.stdout.write(f"{PLAYING}\n")
        sys.stdout.flush()
        await Player(bus, again_s=AGAIN_S, ids=True).play(scripts)


if __name__ == "__main__":
    bus, seconds, acks = sys.argv[1:]
    record_publishing(Path(acks))
    asyncio.run(_play(BusSettings.model_validate_json(Path(bus).read_text()), float(seconds)))
