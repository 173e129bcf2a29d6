"""Deal the work of a round out to tenants, so that a flood of one delays no other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence


def fair_shares(waiting: Sequence[tuple[str, int]], most: int) -> list[int]:
    """How many messages to take of each queue, given its tenant and length.

    Tenants share `most` evenly, and what one leaves goes to the others; within a tenant every
    queue gives the same part of its messages, rounded up.
    """
    lengths: Counter[str] = Counter()
    for tenant, length in waiting:
        lengths[tenant] += length
    level = _level(lengths, most)
    parts = {tenant: min(level / total, 1.0) for tenant, total in lengths.items() if total}
    return [math.ceil(length * parts.get(tenant, 0.0)) for tenant, length in waiting]


def _level(lengths: Mapping[str, int], most: int) -> float:
    """The most that one tenant may take for all together to take `most`."""
    left, tenants = float(most), len(lengths)
    for length in sorted(lengths.values()):
        if length * tenants >= left:
            break
        left, tenants = left - length, tenants - 1
    return left / max(tenants, 1)
