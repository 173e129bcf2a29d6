"""Strict JSON reader: UTF-8, bounded integers, duplicate keys detected."""

from __future__ import annotations

import json
import reprlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from stepvad.errors import DataError
from stepvad.formats import files, limits

MAX_DIGITS = 18
"""Most digits of an integer, so that it fits in 64 bits."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """Placeholder for an object with a duplicate key; the caller knows the track it belongs to."""

    key: str


def load(path: Path) -> object:
    """Parse a JSON file; errors name the file."""
    data = files.read_bytes(path, most=limits.MAX_JSON_BYTES)
    try:
        return parse(data)
    except DataError as error:
        raise error.located(str(path)) from error


def parse(data: bytes) -> object:
    """Parse JSON text.

    NaN and Infinity are accepted because pose estimators write them. An object with a duplicate
    key is returned as `Repeated`.
    """
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise DataError(
            f"expected JSON in UTF-8, got byte 0x{data[error.start]:02x} at {error.start}",
            hint="the file may be binary or damaged",
        ) from error
    except json.JSONDecodeError as error:
        raise DataError(
            f"expected JSON, got: {error.msg}, line {error.lineno} column {error.colno}",
            hint="the file may be truncated; write or copy it again",
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"expected JSON of a normal size, got: {error}",
            hint="this is not a pose file",
        ) from error


def shown(value: object) -> str:
    """A short description of a JSON value for error messages."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case list():
            return f"a list of {len(value)}"
        case dict() | Repeated():
            return "an object"
        case _:
            return reprlib.repr(value)


def whole_number(value: object) -> int | None:
    """A non-negative integer, given as a number or in digits; None for anything else.

    >>> whole_number("0012"), whole_number(7.0), whole_number("-1"), whole_number(True)
    (12, 7, None, None)
    """
    match value:
        case bool():
            return None
        case str() if value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS:
            return int(value)
        case int() if 0 <= value < 10**MAX_DIGITS:
            return value
        case float() if value.is_integer() and 0 <= value < 10**MAX_DIGITS:
            return int(value)
        case _:
            return None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object] | Repeated:
    """Build a dictionary, or `Repeated` if keys repeat: `dict` would silently keep the last."""
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
    return Repeated(key)
