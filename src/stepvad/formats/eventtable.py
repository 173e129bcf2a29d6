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
    """All fields of an event, and the time at which it was marked as normal."""
    return record.to_json() | {"marked": marked_at}


def write(events: Iterable[dict[str, Any]], format: TableFormat, file: TextIO) -> None:
    """Write the fields of events, one event per line."""
    if format == "jsonl":
        file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in events)
        return
    names = [field.name for field in fields(Record)]
    writer = csv.DictWriter(file, [*names, "doubt", "marked"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in one.items()} for one in events)


def _cell(value: Any) -> Any:
    """A value for one cell; text that a spreadsheet would run as a formula is quoted."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, str) and value[:1] in "=+-@\t\r":
        return f"'{value}"
    return value
