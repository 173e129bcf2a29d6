"""Faults of a network between hosts: who cannot reach whom, for how long. Nothing but a plan."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tests.fleet.hosts import Pair

REST_S = 4.0, 8.0
"""Between two faults."""
LASTS_S = 4.0, 15.0
FLAP_S = 10.0
"""A link that flaps is down for the first half of this, again and again."""
FLAPS = 3
END_S = 10.0
"""The last fault ends so long before the cameras do."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Links that fail at a time."""

    kind: str
    words: str
    cut: frozenset[Pair] = frozenset()
    slow: frozenset[Pair] = frozenset()
    nameless: tuple[str, ...] = ()
    """Hosts that can resolve no name."""
    flap_s: float = 0.0
    rest_s: float = 0.0
    """Quiet seconds before it."""
    lasts_s: float = 0.0

    def phases(self) -> Iterable[tuple[bool, float]]:
        """Whether it is on, and for how long, in turn."""
        if not self.flap_s:
            return [(True, self.lasts_s)]
        return [(True, self.flap_s / 2), (False, self.flap_s / 2)] * round(
            self.lasts_s / self.flap_s
        )


@dataclass(frozen=True, slots=True)
class Roles:
    """The names of the hosts, by what runs on them."""

    brokers: Sequence[str]
    workers: Sequence[str]
    writers: Sequence[str]
    others: Sequence[str]
    """The database and those who send poses."""
    operator: str
    """Looks on; it has no fault of its own."""

    @property
    def clients(self) -> Sequence[str]:
        return (*self.workers, *self.writers, *self.others)

    @property
    def all(self) -> Sequence[str]:
        return (*self.brokers, *self.clients, self.operator)


def between(some: Iterable[str], others: Iterable[str]) -> frozenset[Pair]:
    """The links from some hosts to others, one way."""
    targets = [*others]
    return frozenset((a, b) for a in some for b in targets if a != b)


def both_ways(some: Sequence[str], others: Sequence[str]) -> frozenset[Pair]:
    return between(some, others) | between(others, some)


def _alone(roles: Roles, name: str, kind: str) -> Fault:
    return Fault(f"{kind} alone", name, both_ways([name], roles.all))


def _halves(roles: Roles, rng: random.Random) -> Fault:
    """A broker and some of the clients against the rest."""
    some = [rng.choice(roles.brokers), *(one for one in roles.clients if rng.random() < 0.4)]
    rest = [one for one in roles.all if one not in some]
    return Fault("cluster in halves", ", ".join(some), both_ways(some, rest))


def _one_way(roles: Roles, rng: random.Random) -> Fault:
    """Packets pass in one direction only: between two brokers, or of one host and all others."""
    if rng.random() < 0.4:
        a, b = rng.sample(roles.brokers, 2)
        return Fault("one way", f"{a} to {b}", between([a], [b]))
    one = rng.choice([*roles.brokers, *roles.clients])
    if rng.random() < 0.5:
        return Fault("one way", f"{one} to all", between([one], roles.all))
    return Fault("one way", f"all to {one}", between(roles.all, [one]))


def _slow(roles: Roles, rng: random.Random) -> Fault:
    one = rng.choice([*roles.brokers, *roles.clients])
    return Fault("300 ms and 5 % loss", one, slow=both_ways([one], roles.all))


def _nameless(roles: Roles, rng: random.Random) -> Fault:
    """Names are gone while a broker is: its clients have to find another one."""
    one = rng.choice(roles.brokers)
    fault = _alone(roles, one, "broker")
    return replace(fault, kind="names gone", words=f"and {one}", nameless=(*roles.all,))


def _flapping(roles: Roles, rng: random.Random) -> Fault:
    one = rng.choice([*roles.brokers, *roles.clients])
    return replace(_alone(roles, one, ""), kind="flapping link", flap_s=FLAP_S)


def _until_the_end(found: Sequence[Fault], left_s: float) -> list[Fault]:
    """Wait before the last one, so that it ends when the last seconds begin."""
    return [*found[:-1], *(replace(one, rest_s=one.rest_s + left_s) for one in found[-1:])]


def plan(roles: Roles, seed: int, seconds: float) -> list[Fault]:
    """One fault after the other, of every kind in turn, in an order that the seed tells."""
    rng = random.Random(seed)
    kinds: list[Callable[[], Fault]] = [
        lambda: _alone(roles, rng.choice(roles.brokers), "broker"),
        lambda: _alone(roles, rng.choice(roles.workers), "worker"),
        lambda: _alone(roles, rng.choice(roles.writers), "writer"),
        *(lambda one=one: _alone(roles, one, one) for one in roles.others),
        lambda: _halves(roles, rng),
        lambda: _one_way(roles, rng),
        lambda: _one_way(roles, rng),
        lambda: _slow(roles, rng),
        lambda: _nameless(roles, rng),
        lambda: _flapping(roles, rng),
    ]
    found: list[Fault] = []
    left_s = seconds - END_S
    while True:
        rng.shuffle(kinds)
        for make in kinds:
            fault = make()
            lasts_s = FLAPS * FLAP_S if fault.flap_s else rng.uniform(*LASTS_S)
            rest_s = rng.uniform(*REST_S)
            left_s -= rest_s + lasts_s
            if left_s < 0:
                return _until_the_end(found, left_s + rest_s + lasts_s)
            found.append(replace(fault, rest_s=rest_s, lasts_s=lasts_s))
