"""Roles of a fleet that are altered before they run: they write down what they do, or hang.

python -m tests.fleet.altered recording FLEET.toml WINDOWS [MILLISECONDS_A_WINDOW]
python -m tests.fleet.altered hanging-worker FLEET.toml HUNG_S thread|loop
python -m tests.fleet.altered hanging-writer FLEET.toml HUNG_S task|loop
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from stepvad.cli import main

if TYPE_CHECKING:
    from stepvad.detector import Detector
    from stepvad.fleet.broker.bus import Delivery
    from stepvad.fleet.worker.owned_shard import OwnedShard
    from stepvad.fleet.worker.worker import Worker
    from stepvad.model.scoring import WindowScores
    from stepvad.windows.views import Windows


def record(path: str, slow_ms: str = "0") -> None:
    """A worker that writes down the bits of every window it scores, or is slow.

    When each was scored stands in a file of its own: track, frame, unix seconds; what the broker
    acknowledged in another.
    """
    from stepvad.detector import Detector
    from tests.fleet.results import digests, record_publishing

    how = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    file, times = os.open(path, how), os.open(f"{path}.times", how)
    score_windows, delay_s = Detector.score_windows, float(slow_ms) / 1000

    def recording(self: Detector, windows: Windows) -> WindowScores:
        if len(windows) and not delay_s:
            os.write(file, "".join(f"{line}\n" for line in digests(windows)).encode())
        time.sleep(delay_s * len(windows))
        scores = score_windows(self, windows)
        pairs = zip(windows.track_id.tolist(), windows.frame.tolist(), strict=True)
        now = time.time()
        os.write(times, "".join(f"{track} {frame} {now}\n" for track, frame in pairs).encode())
        return scores

    Detector.score_windows = recording  # type: ignore[method-assign]  # as it was, and written down
    record_publishing(Path(f"{path}.acks"))


def hang_at_first_frame(hung_s: str, where: str) -> None:
    """A worker that scores nothing but rounds without frames, in its thread or in the loop."""
    from stepvad.fleet.worker import stats, worker

    stats.HUNG_S = float(hung_s)
    worker.INLINE_S = math.inf if where == "loop" else 0.0
    score = worker.Worker._score

    def hanging(
        self: Worker, taken: Sequence[tuple[OwnedShard, Sequence[Delivery]]], now: float
    ) -> None:
        if any(deliveries for _, deliveries in taken):
            threading.Event().wait()
        score(self, taken, now)

    worker.Worker._score = hanging  # type: ignore[method-assign]  # what a hanging engine does


def hang_at_fetch(hung_s: str, where: str) -> None:
    """A writer whose fetches never return, in that task or with its whole loop."""
    from stepvad.fleet.broker import consumers
    from stepvad.fleet.events import writer

    writer.HUNG_S = float(hung_s)

    async def hanging(*_: object) -> NoReturn:
        if where == "loop":
            threading.Event().wait()
        while True:
            await asyncio.sleep(3600)

    consumers.EventsConsumer.fetch = hanging  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    how, settings, *words = sys.argv[1:]
    match how:
        case "recording":
            record(*words)
        case "hanging-worker":
            hang_at_first_frame(*words)
        case "hanging-writer":
            hang_at_fetch(*words)
    role = "events" if how == "hanging-writer" else "worker"
    sys.argv = ["stepvad", "fleet", role, settings]
    main()
