"""`archive score` with a clock in its processes: what a shard takes, and the network in it.

    python -m studies.figures.timed_archive TIMES archive score POSES -o SCORES --model MODEL

Every process adds a line for every shard to a file of its own below TIMES. Both are processor time
of the same process in the same moments, so whatever else runs on the machine slows both down.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, astuple, dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Any

from stepvad.archive import scoring
from stepvad.archive.scoring import ShardOutcome, ShardTask
from stepvad.model.engines import EngineNetwork
from stepvad.model.pcspace import PCSpace


@dataclass(frozen=True, slots=True)
class Times:
    """Windows, and seconds of one processor that they took."""

    windows: int = 0
    whole: float = 0.0
    """From the digests of the poses to the last byte of their scores."""
    network: float = 0.0
    projection: float = 0.0

    @classmethod
    def sum(cls, several: Iterable[Times]) -> Times:
        """All together."""
        columns = [*zip(*map(astuple, several), strict=True)] or [()] * len(fields(cls))
        return cls(*map(sum, columns))

    @classmethod
    def read(cls, root: Path, *, since: float = 0.0) -> Times:
        """What processes that lived since then wrote; a line that a kill cut off is left out."""
        files = (file for file in root.rglob("*.jsonl") if file.stat().st_mtime >= since)
        lines = (line for file in files for line in file.read_text().split("\n"))
        return cls.sum(cls(**json.loads(line)) for line in lines if line.endswith("}"))


def score(task: ShardTask, *, root: Path) -> ShardOutcome:
    """Score a shard as always, and note what it took."""
    spent = _clocks()
    spent[EngineNetwork] = spent[PCSpace] = 0.0
    started = time.process_time()
    outcome = scoring.score_shard(task)
    whole = time.process_time() - started
    windows = 0 if outcome.facts is None else outcome.facts.windows
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(asdict(Times(windows, whole, *spent.values()))) + "\n")
    return outcome


@cache
def _clocks() -> dict[type, float]:
    """Put clocks around the network and the projection of this process; what they show."""
    spent: dict[type, float] = {EngineNetwork: 0.0, PCSpace: 0.0}

    def clocked(of: type, run: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            started = time.process_time()
            try:
                return run(*given)
            finally:
                spent[of] += time.process_time() - started

        return timed

    # In place of what is measured.
    EngineNetwork.energies = clocked(EngineNetwork, EngineNetwork.energies)  # type: ignore[method-assign]
    PCSpace.project = clocked(PCSpace, PCSpace.project)  # type: ignore[method-assign]
    return spent


def main() -> None:
    """Run the command line with clocks in its processes, which score as this one asks them to."""
    from stepvad.cli import main as command_line
    from studies.figures import timed_archive  # processes import it by this name

    root = Path(sys.argv.pop(1)).absolute()
    scoring.score_shard = partial(timed_archive.score, root=root)
    sys.argv[0] = "stepvad"
    command_line()


if __name__ == "__main__":
    main()
