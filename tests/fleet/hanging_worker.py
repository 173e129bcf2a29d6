"""`stepvad fleet worker` whose scoring hangs at the first frame, in its thread or in the loop.

python -m tests.fleet.hanging_worker FLEET.toml HUNG_S thread|loop
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence

from stepvad.cli import main
from stepvad.fleet.broker.bus import Delivery
from stepvad.fleet.worker import stats, worker
from stepvad.fleet.worker.owned_shard import OwnedShard


def hang_at_first_frame() -> None:
    """From now on, a worker scores nothing but rounds without frames."""
    score = worker.Worker._score

    def hanging(
        self: worker.Worker, taken: Sequence[tuple[OwnedShard, Sequence[Delivery]]], now: float
    ) -> None:
        if any(deliveries for _, deliveries in taken):
            threading.Event().wait()
        score(self, taken, now)

    worker.Worker._score = hanging  # type: ignore[method-assign]  # what a hanging engine does


if __name__ == "__main__":
    settings, hung_s, where = sys.argv[1:]
    hang_at_first_frame()
    stats.HUNG_S = float(hung_s)
    worker.INLINE_S = math.inf if where == "loop" else 0.0
    sys.argv = ["stepvad", "fleet", "worker", settings]
    main()
