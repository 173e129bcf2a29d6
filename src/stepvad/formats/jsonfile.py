"""JSON read strictly: in UTF-8, with numbers of sane size, and no key twice unnoticed."""

from __future__ import annotations

import json
import reprlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from stepvad.errors import DataError
from stepvad.formats import files, limits

MAX_DIGITS = 18
"""Digits of the longest whole number read, so that it fits 64 bits."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """Stands for an object that gives a key twice: only its reader knows which track that is."""

    key: str


def load(path: Path) -> object:
    """The value in a JSON file; errors name the file."""
    data = files.read_bytes(path, most=limits.MAX_JSON_BYTES)
    try:
        return parse(data)
    except DataError as error:
        raise error.located(str(path)) from error


def parse(data: bytes) -> object:
    """The value in JSON text.

    NaN and Infinity count as numbers, as pose estimators write them. An object with a key twice
    comes back as `Repeated`.
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
            hint="the file may be cut off; write or copy it again",
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"expected JSON of usual size, got: {error}",
            hint="this is not a pose file",
        ) from error


def shown(value: object) -> str:
    """A JSON value as an error message shows it: short, whatever it holds."""
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
    """A whole number from 0 up, given as a number or in digits; None for anything else.

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
    """A JSON object as a dictionary, which would silently keep the last of equal keys."""
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
    return Repeated(key)
