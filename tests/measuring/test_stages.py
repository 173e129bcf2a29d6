"""What a late message waited for is found in its trace."""

from __future__ import annotations

from measuring.stages import stalls, table
from tests.fleet.collector import Span


def message(number: int, due: float, outcome: str = "scored", **seconds: float) -> list[Span]:
    """The spans of a message; stages follow each other, named with _ for a blank."""
    trace, at, made = bytes([number]), due, []
    for name, took in seconds.items():
        stage = name.replace("_", " ")
        made.append(Span(trace, b"s", b"w", "stepvad-worker", stage, at, at + took, {}))
        at += took
    facts = {"stepvad.shard": f"{number % 4}", "stepvad.outcome": outcome}
    worker = Span(trace, b"w", b"e", "stepvad-worker", "worker", due, at, facts)
    edge = Span(trace, b"e", b"", "stepvad-edge", "edge", due, due, {})
    return [*made, worker, edge]


SPANS = [
    *message(1, 10.0, worker_queue=0.001, worker_score=0.002),
    *message(2, 20.0, worker_deliver=0.1, worker_queue=1.4, worker_score=0.002),
    *message(3, 20.5, "shed", worker_deliver=0.1, worker_queue=1.6),
    *message(4, 40.0, worker_deliver=3.0, worker_queue=0.1, worker_score=0.002),
    Span(bytes([4]), b"x", b"e", "stepvad-worker", "worker", 40.0, 99.0, {}),  # read again
    Span(bytes([4]), b"y", b"x", "stepvad-worker", "worker queue", 40.0, 99.0, {}),
    *message(5, 50.0, worker_queue=0.001, worker_score=0.002)[:-1],  # nobody knows when it was due
]


def test_messages_that_were_late_together_are_one_stall_with_its_longest_stage() -> None:
    first, second = (line.strip("| ").split(" | ") for line in stalls(SPANS).splitlines()[2:])
    assert first == ["10.0", "0.5", "2", "1", "2", "1.70", "worker queue (94%)"]
    assert second == ["30.0", "0.0", "1", "0", "1", "3.10", "worker deliver (97%)"]


def test_each_stage_is_told_for_all_and_for_late_messages() -> None:
    told = table(SPANS)
    assert told.startswith("4 messages traced, 1 of them read again\n")
    assert "| worker queue | 750.0 | 1594.0 | 1600.0 | 1400.0 |" in told
    assert "median of 3 late ones" in told
    assert "| worker score | 2.0 | 2.0 | 2.0 | - |" in table(message(1, 10.0, worker_score=0.002))
