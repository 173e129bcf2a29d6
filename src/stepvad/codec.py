"""Values across borders: dataclasses as JSON and back, checked; versions."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from stepvad.errors import DataError

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""Any JSON value. Decoded text of unknown shape is `object` until it has been checked."""
JsonObject: TypeAlias = "dict[str, Json]"

LOWEST, LARGEST = -(2**63), 2**63
Integer = Annotated[int, Meta(ge=LOWEST, le=LARGEST - 1)]
Count = Annotated[int, Meta(ge=0, le=LARGEST - 1)]
Number = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""A finite number; JSON has no others."""
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
VERSIONS = ("version", "schema", "format")
"""Fields that state a version. Their type is a `Literal` of the versions that can be read."""
NEWER = "install the version of stepvad that wrote it, or a newer one"

Value = TypeVar("Value")


_learned: set[object] = set()
_learning = threading.Lock()


class NewerVersionError(DataError):
    """Data that a newer version of stepvad wrote: nothing is wrong with it."""


def encode(value: object) -> bytes:
    """Encode a dataclass and all that is in it as JSON."""
    return msgspec.json.encode(value, enc_hook=_array)


def to_plain(value: object) -> Any:
    """Convert a dataclass and all that is in it to the objects, lists and values of JSON."""
    return msgspec.json.decode(encode(value))


def _array(value: Any) -> Any:
    """The plain values of numpy's numbers and arrays."""
    if not hasattr(value, "tolist"):
        raise TypeError(f"expected a value for JSON, got {type(value).__name__}")
    return value.tolist()


def _learn(kind: object) -> None:
    """Have msgspec learn a type, by one thread alone.

    It stores what it knows of a dataclass before it is complete; a second thread that meets that
    crashes the process.
    """
    if kind not in _learned:
        with _learning:
            msgspec.json.Decoder(kind)
            _learned.add(kind)


def decode(kind: type[Value], data: bytes | bytearray | str, what: str) -> Value:
    """Decode JSON into a dataclass and check it; unknown fields are ignored.

    Raise a `DataError` that says `what` it should be and which field is not as expected, or a
    `NewerVersionError`.
    """
    _learn(kind)
    try:
        return msgspec.json.decode(data, type=kind)
    except (ValueError, OverflowError, RecursionError):
        try:
            plain = msgspec.json.decode(data)  # to find the version, and the value refused
        except (ValueError, RecursionError) as error:
            raise DataError(f"{what}: expected JSON, got: {error}") from None
    return from_plain(kind, plain, what)


def from_plain(kind: type[Value], value: object, what: str) -> Value:
    """Make a dataclass of decoded values; check it and raise as `decode` does."""
    _learn(kind)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _refused(kind, value, what, str(error)) from None
    except (OverflowError, RecursionError) as error:
        raise DataError(f"{what}: expected plain values, got: {error}") from None


_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "Number out of range": "a finite number",
    "Invalid base64 encoded string": "base64",
}
"""What msgspec says, and what we say."""


def _refused(kind: Any, value: Any, what: str, reason: str) -> DataError:
    """The error for values that msgspec refused: path, expected and got."""
    reason, _, at = reason.partition(" - at ")
    kind, value, path = _located(kind, value, what, at.strip("`"))
    if missing := re.fullmatch("Object missing required field `(.+)`", reason):
        return DataError(f"{what}: expected {path}{'.' * bool(path)}{missing[1]}, got none")
    choices = [str(one) for each in _members(kind, Literal) for one in get_args(each)]
    if types := re.fullmatch("Expected `(.+?)`(.*?)(?:, got .*)?", reason):
        expected = " or ".join(_WORDS.get(one, one) for one in types[1].split(" | "))
        is_finite = "e+308" in types[2]  # the bound of a `Number`
        expected = expected.replace("a n", "a finite n") if is_finite else expected + types[2]
    elif reason in _WORDS:
        expected = _WORDS[reason]
    elif choices:
        expected = ", ".join(choices[:-1]) + " or " * (len(choices) > 1) + choices[-1]
    else:  # from a constructor
        return DataError(": ".join(filter(None, (what, path, reason))))
    got = type(value).__name__ if isinstance(value, list | tuple | dict) else f"{value!r:.40}"
    return DataError(f"{what}: expected {expected}{f' as {path}' if path else ''}, got {got}")


def _located(kind: Any, value: Any, what: str, path: str) -> tuple[Any, Any, str]:
    """Type, value and name of what is at a path; raise if something on the way is newer than us."""
    at = ""
    for name, index in re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", path):
        _check_stated(kind, value, what)
        if name:
            owner = next(one for one in _members(kind) if is_dataclass(one))
            kind, value = get_type_hints(owner, include_extras=True)[name], value.get(name)
            at += f".{name}"
        elif index == "...":  # the first item of an object by name that is refused
            (kind,) = (get_args(one)[1] for one in _members(kind, dict, Mapping))
            key, value = next((key, one) for key, one in value.items() if not _is_valid(kind, one))
            at += f"[{key!r:.40}]"
        else:
            kinds = next(get_args(one) for one in _members(kind, list, tuple))
            kind = kinds[int(index)] if Ellipsis not in kinds and len(kinds) > 1 else kinds[0]
            value = value[int(index)]
            at += f"[{index}]"
    _check_stated(kind, value, what)
    return kind, value, at.removeprefix(".")


def _members(kind: Any, *origins: Any) -> list[Any]:
    """The types of a union, or the type, without annotations; only those of some origins."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0], *origins)
    if get_origin(kind) in (Union, UnionType):
        return [one for each in get_args(kind) for one in _members(each, *origins)]
    return [kind] if not origins or get_origin(kind) in origins else []


def _is_valid(kind: Any, value: object) -> bool:
    try:
        msgspec.convert(value, kind)
    except (ValueError, DataError):
        return False
    return True


def _check_stated(kind: Any, value: object, what: str) -> None:
    """Check the version that an object states, if its type has one."""
    for owner in filter(is_dataclass, _members(kind)):
        for name, each in get_type_hints(owner, include_extras=True).items():
            if name in VERSIONS and isinstance(value, Mapping) and get_origin(each) is Literal:
                check_version(what, value.get(name, 1), max(get_args(each)))


def check_version(what: str, version: object, ours: int) -> None:
    """Raise `DataError` if a layout has another version than ours."""
    if type(version) is not int or version != ours:
        is_newer = type(version) is int and version > ours
        raise (NewerVersionError if is_newer else DataError)(
            f"{what}: expected version {ours}, got {version!r:.40}", hint=NEWER
        )
