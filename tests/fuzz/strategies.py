"""Whole files damaged on purpose: by bytes, and by what the values in them say."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import tomlkit
from hypothesis import strategies as st

NUMBERS = st.sampled_from(
    [
        *(0, -1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 10**30, 10**400, 99_999_999, 100_000_001),
        *(0.5, -0.0, 1e-300, 1e308, float("nan"), float("inf"), float("-inf")),
    ]
)
ODD: st.SearchStrategy[Any] = NUMBERS | st.sampled_from(
    [
        *(None, True, "", "x", "NaN", "\ud800", "\0", "../../etc/passwd", "9" * 40, b"\xff" * 9),
        *([], {}, [[]], [None], {"": None}, {"schema": 1}),
        *("a" * 200_000, "é" * 5000, "1" * 5000, "a." * 20_000),
    ]
)
MARKS = [b"", b"0", b"-", b"9" * 30, b"1e999", b",", b"[", b"]", b"{", b"}", b"null", b'"']
MARKS += [b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0" * 8, b"\x80" * 9]


@st.composite
def by_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    """Some bytes replaced, put in or cut out, often where headers and footers are."""
    content = bytearray(data)
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 4, 16]))):
        at = draw(st.integers(0, len(content)))
        at = draw(st.sampled_from([at, at % 400, max(0, len(content) - at % 400)]))
        cut = draw(st.sampled_from([0, 1, 1, 2, 8, 100, len(content)]))
        other = draw(st.integers(0, len(content)))
        doubled = bytes(content[other : other + draw(st.sampled_from([8, 1000]))])
        content[at : at + cut] = draw(st.binary(max_size=4) | st.sampled_from([*MARKS, doubled]))
    return bytes(content)


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """A value of lists and dictionaries with other values, sizes and keys in some places."""
    holder = [deepcopy(value)]
    for _ in range(draw(st.sampled_from([1, 1, 2, 5]))):
        container: Any = holder
        key: Any = 0
        while (
            isinstance(container[key], list | dict) and container[key] and draw(st.integers(0, 6))
        ):
            container = container[key]
            keys = [*container] if isinstance(container, dict) else range(len(container))
            key = draw(st.sampled_from(keys))
        here = container[key]
        match draw(
            st.sampled_from(["odd", "bytes", "times", "without", "again", "long", "inside"])
        ):
            case "bytes" if isinstance(here, bytes):
                container[key] = draw(by_bytes(here))
            case "times" if isinstance(here, int | float):
                container[key] = here * draw(st.sampled_from([-1, 10, 1000, 10**6, 10**9, 0.5]))
            case "without" if container is not holder:
                del container[key]
            case "again" if isinstance(container, dict):
                container[draw(st.sampled_from(["x", "", "00", "-1", "99999999"]))] = here
            case "again":
                container.insert(0, here)
            case "long" if isinstance(here, list) and len(repr(here)) < 10_000:
                container[key] = (here or [0]) * draw(st.sampled_from([2, 50, 2000]))
            case "inside":
                container[key] = [here]
            case _:
                container[key] = deepcopy(draw(ODD))
        holder = holder or [None]
    return holder[0]


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def _tensors(data: bytes) -> Any:
    """The header of a model, with the settings in it."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    inner = header["__metadata__"]
    return header | {"__metadata__": {key: _json_or_text(inner[key]) for key in inner}}


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _with_tensors(header: Any, data: bytes) -> bytes:
    inner = header.get("__metadata__")
    if isinstance(inner, dict):
        texts = {
            key: one if isinstance(one, str) else json.dumps(one) for key, one in inner.items()
        }
        header = header | {"__metadata__": texts}
    text = _dumped(header)
    return len(text).to_bytes(8, "little") + text + data[8 + int.from_bytes(data[:8], "little") :]


def _table(data: bytes) -> Any:
    """The rows of a Parquet file, its metadata, and how it is written."""
    table, about = (
        pq.read_table(io.BytesIO(data)),
        pq.read_metadata(io.BytesIO(data)).metadata or {},
    )
    kept = {key.decode(): json.loads(about[key]) for key in about if key != b"ARROW:schema"}
    how = {"use_dictionary": True, "data_page_version": "2.0", "write_page_checksum": False}
    return {"rows": table.to_pydict(), "metadata": kept, "how": how}


def _with_table(value: Any, data: bytes) -> bytes:
    schema = pq.read_schema(io.BytesIO(data))
    try:
        table = pa.table(value["rows"], schema=schema)
    except (pa.ArrowException, KeyError, TypeError, ValueError):
        table = pa.table(value["rows"])
    told = {key: json.dumps(one) for key, one in value["metadata"].items()}
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(told), out, compression="zstd", **value["how"])
    return out.getvalue()


NPY = re.compile(rb"'descr': (.*), 'fortran_order': (.*), 'shape': (.*), \}")


def _with_npy(header: Any, data: bytes) -> bytes:
    text = f"{{'descr': {header[0]}, 'fortran_order': {header[1]}, 'shape': {header[2]}, }}"
    line = text.ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + data[128:]


def _npy(data: bytes) -> Any:
    found = NPY.search(data[:400])
    if found is None:
        raise ValueError("no header")
    return [part.decode() for part in found.groups()]


def _members(data: bytes) -> Any:
    with zipfile.ZipFile(io.BytesIO(data)) as whole:
        return {name: [whole.read(name), _npy(whole.read(name))] for name in whole.namelist()}


def _with_members(members: Any, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, (body, header) in members.items():
            made.writestr(name, _with_npy(header, body) if header != _npy(body) else body)
    return out.getvalue()


Form = tuple[Callable[[bytes], Any], Callable[[Any, bytes], bytes]]
FORMS: dict[str, Form] = {
    ".json": (json.loads, lambda value, _: _dumped(value)),
    ".jsonl": (
        lambda data: [json.loads(line) for line in data.splitlines()],
        lambda lines, _: b"\n".join(map(_dumped, lines)),
    ),
    ".toml": (
        lambda data: tomlkit.parse(data.decode()).unwrap(),
        lambda value, _: tomlkit.dumps(value).encode(),
    ),
    ".msgpack": (
        lambda data: msgpack.unpackb(data, strict_map_key=False),
        lambda value, _: bytes(msgpack.packb(value)),
    ),
    ".csv": (
        lambda data: re.split(r"([0-9.]+)", data.decode()),
        lambda words, _: "".join(map(str, words)).encode(),
    ),
    ".safetensors": (_tensors, _with_tensors),
    ".parquet": (_table, _with_table),
    ".npy": (_npy, _with_npy),
    ".npz": (_members, _with_members),
}
"""The values in a file by its suffix, and the file of other values."""
FORMS[".txt"] = FORMS[".csv"]


@st.composite
def damaged(draw: st.DrawFn, data: bytes, suffix: str) -> bytes:
    """A damaged file; by its bytes, if values cannot be what they should be."""
    way = draw(st.sampled_from(["bytes", "bytes", "values", "values", "values", "deep"]))
    if way == "deep":
        return draw(st.sampled_from([b"[", b'{"a":', b"x = ["])) * 100_000
    if way == "values" and suffix in FORMS:
        unpack, pack = FORMS[suffix]
        value = draw(changed(unpack(data)))
        try:
            return pack(value, data)
        except (ArithmeticError, AttributeError, LookupError, ValueError, TypeError):
            pass
        except (RecursionError, pa.ArrowException, tomlkit.exceptions.TOMLKitError):
            pass
    return draw(by_bytes(data))
