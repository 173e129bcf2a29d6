"""Stored events as lines of JSON or CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Literal, TextIO

from stepvad.codec import to_plain
from stepvad.incidents.record import Record
from stepvad.incidents.review import Review

TableFormat = Literal["jsonl", "csv"]


REVIEWED = ("mark", "marked", "reviewed", "reviewed_by")
"""What was said of an event; `marked` is the time at which it was judged."""


def facts(record: Record, review: Review | None) -> dict[str, Any]:
    """All fields of an event, and what was said of it."""
    said: tuple[object, ...] = (None, None, None, None)
    if review is not None:
        said = review.mark, review.at if review.mark else None, review.at, review.by
    return to_plain(record) | dict(zip(REVIEWED, said, strict=True))


def write(events: Iterable[dict[str, Any]], format: TableFormat, file: TextIO) -> None:
    """Write the fields of events, one event per line."""
    if format == "jsonl":
        file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in events)
        return
    names = [field.name for field in fields(Record)]
    writer = csv.DictWriter(file, [*names, *REVIEWED], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in one.items()} for one in events)


def _cell(value: Any) -> Any:
    """A value for one cell; text that a spreadsheet would run as a formula is quoted."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, str) and value[:1] in "=+-@\t\r":
        return f"'{value}"
    return value
