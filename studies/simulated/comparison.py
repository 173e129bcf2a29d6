"""What a fleet said, scored and stored in a run with faults, beside a quiet run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from tests.fleet.fleets import Heard, WorkerProcess
from tests.fleet.results import Quiet, Row, compared, differences, wanted


def table(facts: Mapping[str, object]) -> str:
    """The facts in rows of Markdown."""
    rows = [f"| {name} | {value} |" for name, value in facts.items()]
    return "\n".join(["| what | how many |", "|---|--:|", *rows])


def windows_of(workers: Sequence[WorkerProcess]) -> set[str]:
    """The windows that workers wrote down; a last line may be cut by a kill."""
    return {
        line
        for one in workers
        if one.windows.exists()
        for line in one.windows.read_text().split("\n")
        if len(line.rpartition(" ")[2]) == 40
    }


def wrong_events(heard: Heard, expected: Quiet) -> dict[str, int]:
    """How many events are not as in a quiet run, by what is wrong."""
    ours, theirs = Counter(heard.facts()), Counter(expected.heard().facts())
    news = Counter(heard.ids("new"))
    known = set(expected.heard().ids("new"))
    for facts, words in (
        (ours - theirs, "said, not expected"),
        (theirs - ours, "expected, not said"),
    ):
        for fact in facts:
            sys.stderr.write(f"{words}: {fact}\n")
    return {
        "events lost": len(known - set(news)),
        "events that nobody expected": len(set(news) - known),
        "events that began twice": sum(n > 1 for n in news.values()),
        "events not ended": len(set(news) - set(heard.ids("end"))),
        "changes that differ": sum((ours - theirs).values()) + sum((theirs - ours).values()),
    }


def wrong_windows(lines: set[str], expected: Quiet) -> dict[str, int]:
    """How many windows are not those of a quiet run."""
    return {
        "windows missing": len(expected.windows - lines),
        "windows that differ": len(lines - expected.windows),
    }


def wrong_rows(rows: Sequence[Row], expected: Quiet) -> dict[str, int]:
    """How many rows are not those of a quiet run, by what is wrong."""
    theirs = wanted(expected)
    known = {row["id"]: row for row in theirs}
    for row in rows:
        wrong = differences(row, known[row["id"]]) if row["id"] in known else ["not expected"]
        if wrong:
            sys.stderr.write(f"row {row['id']}: {', '.join(sorted(wrong))}\n")
    return compared(rows, theirs)
