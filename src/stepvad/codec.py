"""JSON types, and validated access to the fields of decoded objects."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from stepvad.errors import DataError

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""Any JSON value. Decoded text of unknown shape is `object` until `Fields` has checked it."""
JsonObject: TypeAlias = "dict[str, Json]"

LOWEST, LARGEST = -(2**63), 2**63
NEWER = "install the version of stepvad that wrote it, or a newer one"


class NewerVersionError(DataError):
    """Data that a newer version of stepvad wrote: nothing is wrong with it."""


def check_version(what: str, version: object, newest: int) -> int:
    """Return the layout version; raise `DataError` if it is newer than ours or invalid."""
    if type(version) is not int or not 1 <= version <= newest:
        is_newer = type(version) is int and version > newest
        raise (NewerVersionError if is_newer else DataError)(
            f"{what}: expected version {newest} or older, got {version!r:.40}", hint=NEWER
        )
    return version


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of an untrusted object, each validated when read.

    An invalid field raises a `DataError` that names `what` the object should be.
    """

    what: str
    values: Mapping[str, object]

    @classmethod
    def of(cls, what: str, value: object) -> Fields:
        """Wrap a decoded value, which must be an object."""
        if not isinstance(value, Mapping):
            raise DataError(f"{what}: expected an object, got {type(value).__name__}")
        return cls(what, value)

    def __contains__(self, name: str) -> bool:
        """Whether the field exists."""
        return name in self.values

    def version(self, newest: int, name: str = "version") -> int:
        """The layout version; data without a version field has version 1."""
        return check_version(self.what, self.values.get(name, 1), newest)

    def value(self, name: str) -> object:
        """A required field of any type."""
        if name not in self.values:
            raise DataError(f"{self.what}: expected {name}, got none")
        return self.values[name]

    def text(self, name: str) -> str:
        """A string."""
        value = self.value(name)
        if isinstance(value, str):
            return value
        raise self.unlike(name, "a text")

    def flag(self, name: str) -> bool:
        """A boolean."""
        value = self.value(name)
        if isinstance(value, bool):
            return value
        raise self.unlike(name, "true or false")

    def whole(self, name: str, *, least: int = 0, below: int = LARGEST) -> int:
        """An integer from `least` up to, but not including, `below`."""
        value = self.value(name)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value < below:
            return value
        raise self.unlike(name, f"a whole number from {least} on")

    def number(self, name: str, *, most: float = sys.float_info.max) -> float:
        """A finite number with absolute value at most `most`."""
        value = self.value(name)
        if _is_number(value) and abs(value) <= most:
            return float(value)
        raise self.unlike(name, "a number")

    def items(self, name: str) -> list[object]:
        """A list of anything."""
        value = self.value(name)
        if isinstance(value, list | tuple):
            return [*value]
        raise self.unlike(name, "a list")

    def wholes(self, name: str, *, least: int = 0) -> tuple[int, ...]:
        """A list of integers from `least` up."""
        values = [
            value
            for value in self.items(name)
            if isinstance(value, int) and not isinstance(value, bool) and least <= value < LARGEST
        ]
        if len(values) == len(self.items(name)):
            return tuple(values)
        raise self.unlike(name, f"whole numbers from {least} on")

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of finite numbers."""
        values = [
            value
            for value in self.items(name)
            if _is_number(value) and abs(value) <= sys.float_info.max
        ]
        if len(values) == len(self.items(name)):
            return tuple(map(float, values))
        raise self.unlike(name, "finite numbers")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        values = [value for value in self.items(name) if isinstance(value, str)]
        if len(values) == len(self.items(name)):
            return tuple(values)
        raise self.unlike(name, "texts")

    def fields(self, name: str) -> Fields:
        """A nested object."""
        return Fields.of(f"{self.what}: {name}", self.value(name))

    def objects(self, name: str) -> dict[str, Fields]:
        """Nested objects by name."""
        own = self.fields(name)
        if {*map(type, own.values)} - {str}:  # msgpack allows keys of any type
            raise self.unlike(name, "objects by name")
        return {key: Fields.of(f"{own.what} {key!r:.40}", one) for key, one in own.values.items()}

    def unlike(self, name: str, expected: str) -> DataError:
        """The error for a field of another type or value."""
        return DataError(
            f"{self.what}: expected {expected} as {name}, got {self.values.get(name)!r:.40}"
        )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
