"""Where traced messages of a fleet spent their time, and what was long when they were late."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from studies.figures import markdown
from tests.fleet.collector import Span

LATE_S = 1.0
"""A message is late that is scored, or shed, so long after it was due."""
APART_S = 2.0
"""Late messages further apart belong to different stalls."""
STAGES = (
    *("edge publish", "worker deliver", "worker queue", "worker decode", "worker round"),
    *("worker windows", "worker score", "worker decide"),
)


class Way(NamedTuple):
    """One message, from when it was due to when it was scored or shed."""

    due: float
    late_s: float
    shard: str
    outcome: str
    is_again: bool
    """Whether another worker, or the same one, read it again."""
    seconds: dict[str, float]
    """By stage, when it was read for the first time."""


def ways(spans: Iterable[Span]) -> list[Way]:
    """The messages whose trace came from both ends."""
    of: dict[bytes, list[Span]] = defaultdict(list)
    for span in spans:
        of[span.trace].append(span)
    found = []
    for some in of.values():
        edges = [span for span in some if span.name == "edge"]
        workers = [span for span in some if span.name == "worker"]
        if not edges or not workers:
            continue
        edge, worker = edges[0], min(workers, key=lambda span: span.end)
        seconds: dict[str, float] = defaultdict(float)
        for span in some:
            if span.name in STAGES and span.parent in (edge.id, worker.id):
                seconds[span.name] += span.end - span.start
        shard, outcome = (worker.facts[f"stepvad.{name}"] for name in ("shard", "outcome"))
        late_s = worker.end - edge.start
        found.append(Way(edge.start, late_s, shard, outcome, len(workers) > 1, seconds))
    return sorted(found)


def table(spans: Iterable[Span]) -> str:
    """Each stage: how long for most messages, and how long for those that were late."""
    known = ways(spans)
    late = [way for way in known if way.late_s > LATE_S]
    rows = []
    for stage in STAGES:
        all_ms, late_ms = (
            1e3 * np.array([way.seconds.get(stage, 0.0) for way in some] or [np.nan])
            for some in (known, late)
        )
        figures = [*np.quantile(all_ms, [0.5, 0.99]), all_ms.max(), np.median(late_ms)]
        words = [f"{value:.1f}" if np.isfinite(value) else "-" for value in figures]
        rows.append([stage, *words])
    header = ["stage", "p50, ms", "p99, ms", "most, ms", f"median of {len(late)} late ones, ms"]
    again = sum(way.is_again for way in known)
    return f"{len(known)} messages traced, {again} of them read again\n\n" + markdown(
        header, rows, words=[0]
    )


def stalls(spans: Iterable[Span]) -> str:
    """Late messages, one row for those that were late together: when, where, in which stage."""
    known = ways(spans)
    groups: list[list[Way]] = []
    for way in known:
        if way.late_s > LATE_S:
            if not groups or way.due - groups[-1][-1].due > APART_S:
                groups.append([])
            groups[-1].append(way)
    header = ["at, s", "for, s", "late", "of them shed", "shards", "most late, s", "longest stage"]
    return markdown(header, [_stall(some, known[0].due) for some in groups], words=[6])


def _stall(some: Sequence[Way], began: float) -> list[str]:
    spent: dict[str, float] = defaultdict(float)
    for way in some:
        for stage, seconds in way.seconds.items():
            spent[stage] += seconds
    longest = max(spent, key=lambda stage: spent[stage])
    return [
        f"{some[0].due - began:.1f}",
        f"{some[-1].due - some[0].due:.1f}",
        f"{len(some)}",
        f"{sum(way.outcome == 'shed' for way in some)}",
        f"{len({way.shard for way in some})}",
        f"{max(way.late_s for way in some):.2f}",
        f"{longest} ({spent[longest] / sum(spent.values()):.0%})",
    ]
