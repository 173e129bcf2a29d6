"""Files damaged on purpose: by bytes, and by what the values in them say."""

from __future__ import annotations

import io
import json
import random
import re
import zipfile
from collections.abc import Callable
from copy import deepcopy
from typing import Any

Random = random.Random
Mutator = Callable[[bytes, Random], bytes]

NUMBERS = (
    *(0, -1, 1, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 10**30, 10**400),
    *(99_999_999, 100_000_000, 100_000_001, 0.5, -0.0, 1e-300, 1e308),
    *(float("nan"), float("inf"), float("-inf")),
)
ODD: tuple[Any, ...] = (
    *(None, True, False, "", "x", "high", "NaN", "\ud800", "\0", "../../etc/passwd", "9" * 40),
    *([], {}, [[]], [None], {"": None}, {"schema": 1}),
)
TEXTS = ("a" * 200_000, "é" * 5000, "\u202e", "1" * 5000, "a." * 20_000)
MARKS = (b"", b"0", b"-", b"9" * 30, b"1e999", b",", b"[", b"]", b"{", b"}", b"null", b"NaN", b'"')


def by_bytes(data: bytes, rng: Random) -> bytes:
    """Bits flipped, parts cut out, doubled, swapped or overwritten."""
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = _place(len(content), rng)
        match rng.randrange(8):
            case 0 | 1:
                if content:
                    content[min(at, len(content) - 1)] ^= 1 << rng.randrange(8)
            case 2:
                content[at : at + 1] = rng.randbytes(1)
            case 3:
                del content[at:]
            case 4:
                other = _place(len(content), rng)
                length = rng.choice((1, 8, 64, 1000))
                content[at : at + rng.choice((0, length))] = content[other : other + length]
            case 5:
                content[at : at + rng.choice((1, 2, 4, 8))] = rng.choice(
                    (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0" * 8, b"\x80" * 9)
                )
            case 6:
                content[at : at + rng.choice((0, 1, 8))] = rng.choice(MARKS)
            case _:
                del content[at : at + rng.choice((1, 2, 8, 100, 1000))]
    return bytes(content)


def by_json(data: bytes, rng: Random) -> bytes:
    """A JSON document with values, keys and sizes that do not belong there."""
    if rng.random() < 0.3:
        return by_bytes(data, rng)
    if rng.random() < 0.05:
        return deep(rng)
    return _dumped(changed(json.loads(data), rng))


def by_json_lines(data: bytes, rng: Random) -> bytes:
    """JSON documents, one in a line, of which some are changed."""
    lines = data.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = by_json(lines[at], rng).replace(b"\n", b" ")
    return b"\n".join(lines) + b"\n"


def deep(rng: Random) -> bytes:
    """Brackets in brackets."""
    depth = rng.choice((100, 1000, 5000, 100_000))
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"cameras":', b"}]")))
    return opened * depth + b"0" + closed * rng.choice((0, depth))


def changed(value: Any, rng: Random) -> Any:
    """A value made of lists and dictionaries with some changes in it."""
    value = json.loads(json.dumps(value)) if not isinstance(value, bytes) else value
    holder = [value]
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        _change(holder, rng)
    return holder[0]


def _change(holder: list[Any], rng: Random) -> None:
    """One change, anywhere below."""
    container, key = _somewhere(holder, rng)
    value = container[key]
    match rng.randrange(9):
        case 0 | 1:
            container[key] = rng.choice(NUMBERS)
        case 2:
            container[key] = deepcopy(rng.choice(ODD))
        case 3 if isinstance(value, int | float) and not isinstance(value, bool):
            container[key] = value * rng.choice((-1, 10, 1000, 10**6, 10**9, 0.5))
        case 4 if container is not holder:
            del container[key]
        case 5 if isinstance(container, dict):
            container[rng.choice(("x", "", "00", "-1", "99999999", str(key) + "0", TEXTS[1]))] = (
                value
            )
        case 6 if isinstance(value, list):
            # long lists of long lists would take all memory of the mutator
            is_flat = not any(isinstance(one, list | dict) for one in value)
            container[key] = (value or [0])[:2000] * (rng.choice((2, 50, 2000)) if is_flat else 2)
        case 7:
            container[key] = rng.choice(TEXTS)
        case 8 if isinstance(container, list):
            container.insert(0, value)
        case _:
            container[key] = [value] if rng.random() < 0.5 else {"value": value}


def _somewhere(holder: list[Any], rng: Random) -> tuple[Any, Any]:
    """A list or dictionary, and the place in it where something changes."""
    container: Any = holder
    key: Any = 0
    places = [(container, key)]
    while isinstance(container[key], list | dict) and container[key] and rng.random() > 0.15:
        container = container[key]
        key = rng.choice([*(container if isinstance(container, dict) else range(len(container)))])
        places.append((container, key))
    return rng.choice(places[-2:])


def by_toml(data: bytes, rng: Random) -> bytes:
    """TOML with odd values, keys of many parts, and brackets in brackets."""
    lines = data.decode().splitlines()
    at = rng.randrange(len(lines))
    key, equals, _ = lines[at].partition(" = ")
    n = rng.choice((3, 40, 1000, 20_000))
    match rng.randrange(10):
        case 0 | 1:
            return by_bytes(data, rng)
        case 2 if equals:
            lines[at] = (
                f"{key} = {rng.choice(('nan', '-1', '[]', '{}', '1e400', 'true', '9' * 50))}"
            )
        case 3:
            lines.insert(at, ".".join(["a"] * n) + " = 1")
        case 4:
            lines.insert(at, "x = " + "[" * n + "]" * rng.choice((0, n)))
        case 5:
            lines.insert(at, "[" + ".".join(["a", "b"] * n) + "]")
        case 6:
            lines.insert(at, "x = " + "{a = " * n + "1" + "}" * rng.choice((0, n)))
        case 7:
            lines += [f"{'a.' * rng.choice((1, 15, 60))}k{i} = {i}" for i in range(min(n, 5000))]
        case 8:
            lines = lines[:at] + lines[at : at + 1] * min(n, 3000) + lines[at:]
        case _:
            lines[at] = re.sub("[0-9.]+", lambda _: str(rng.choice(NUMBERS)), lines[at], count=1)
    return "\n".join(lines).encode()


def by_text(data: bytes, rng: Random) -> bytes:
    """Lines of text with numbers blown up."""
    if rng.random() < 0.4:
        return by_bytes(data, rng)
    found = [*re.finditer(rb"[0-9]+", data)]
    at = rng.choice(found)
    number = rng.choice((b"99999999", b"1e9", b"9" * 25, b"-1", b"1e308", b"nan", b"4" * 5000))
    return data[: at.start()] + number + data[at.end() :]


def by_safetensors(data: bytes, rng: Random) -> bytes:
    """A model whose header, or the settings in it, say something else."""
    if rng.random() < 0.4:
        return by_bytes(data, rng)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    if rng.random() < 0.5:
        meta = json.loads(header["__metadata__"]["stepvad"])
        header["__metadata__"]["stepvad"] = _dumped(changed(meta, rng)).decode(errors="replace")
    else:
        header = changed(header, rng)
    text = _dumped(header)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def by_msgpack(data: bytes, rng: Random) -> bytes:
    """A message whose fields say something else."""
    import msgpack

    if rng.random() < 0.4:
        return by_bytes(data, rng)
    facts = msgpack.unpackb(data, strict_map_key=False)
    if rng.random() < 0.3:
        at = rng.choice([*facts])
        if isinstance(facts[at], bytes):
            facts[at] = by_bytes(facts[at], rng)
    else:
        kept = {key: value for key, value in facts.items() if isinstance(value, bytes)}
        facts = changed({key: facts[key] for key in facts if key not in kept}, rng)
        facts = {**facts, **kept} if isinstance(facts, dict) else facts
    try:
        return bytes(msgpack.packb(facts))
    except (OverflowError, UnicodeEncodeError):
        return by_bytes(data, rng)


def by_npy(data: bytes, rng: Random) -> bytes:
    """An array whose header claims another shape or type."""
    if rng.random() < 0.4:
        return by_bytes(data, rng)
    shape = rng.choice(
        ("(4,)", "(10**12,)", "(99999999999,)", "(2**31, 2**31)", "(-1,)", "()", "(((", "(0,)")
    )
    kind = rng.choice(
        ("'|u1'", "'<f8'", "'<U99999999'", "'|O'", "[('a', '<f8')]", "'|V0'", "'<c16'")
    )
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data[128:]


def by_npz(data: bytes, rng: Random) -> bytes:
    """An archive of arrays with one of them damaged, or of zeros without end."""
    if rng.random() < 0.5:
        return by_bytes(data, rng)
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as whole,
        zipfile.ZipFile(out, "w", rng.choice((0, 8, 12, 14))) as made,
    ):
        names = whole.namelist()
        at = rng.choice(names)
        for name in names:
            body = whole.read(name)
            if name == at:
                body = by_npy(body, rng)
                most = 1 << 26 if rng.random() < 0.02 else 1 << 14
                body += b"\0" * rng.choice((0, 0, 1 << 10, most))
            made.writestr(name, body)
    return out.getvalue()


def _place(length: int, rng: Random) -> int:
    """Anywhere, and as often near the end or the beginning, where headers are."""
    near = min(length, 400)
    return rng.choice((rng.randint(0, length), rng.randint(0, near), length - rng.randint(0, near)))


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()
