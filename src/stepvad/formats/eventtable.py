"""Stored events as lines of JSON or CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Literal, TextIO

from stepvad.incidents.record import Record

TableFormat = Literal["jsonl", "csv"]


def facts(record: Record, marked_at: float | None) -> dict[str, Any]:
    """All that is known of an event, with the time at which it was marked as normal."""
    return record.to_json() | {"marked": marked_at}


def write(events: Iterable[dict[str, Any]], format: TableFormat, file: TextIO) -> None:
    """Write the facts of events, a line each."""
    if format == "jsonl":
        file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in events)
        return
    names = [field.name for field in fields(Record)]
    writer = csv.DictWriter(file, [*names, "marked"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in one.items()} for one in events)


def _cell(value: Any) -> Any:
    """A value for one cell; a spreadsheet must not take a text for a formula."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, str) and value[:1] in "=+-@\t\r":
        return f"'{value}"
    return value
