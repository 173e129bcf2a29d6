"""Checks of the addresses in settings: cameras, the page and its proxies."""

from __future__ import annotations

import ipaddress
import re
from string import Formatter
from urllib.parse import parse_qsl, urlsplit

from stepvad.errors import DataError
from stepvad.files.redaction import SECRET_NAME
from stepvad.video.camera import device_of


def device_address(url: str) -> str:
    """Validate the address of an attached camera."""
    try:
        device_of(url)
    except DataError as error:
        raise ValueError(f"{error.problem} | {error.hint}") from None
    return url


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL in the form of an Origin header."""
    problem = (
        "expected https://NAME or https://NAME:PORT, got something else | "
        "the page is at the root of its name: leave out any path, user or query"
    )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(problem) from None
    scheme, name = parts.scheme, parts.hostname
    if scheme not in ("http", "https") or not name or not name.isascii() or parts.username:
        raise ValueError(problem)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(problem)
    host = f"[{name}]" if ":" in name else name
    is_usual = port in (None, {"http": 80, "https": 443}[scheme])
    return f"{scheme}://{host}" + ("" if is_usual else f":{port}")


def network_of(proxy: str) -> str:
    """Normalize an IP address or network."""
    try:
        network = ipaddress.ip_network(proxy, strict=False)
    except ValueError:
        raise ValueError(
            f"expected an address or a network, got {proxy!r} | "
            "such as 127.0.0.1 or 172.18.0.0/16; a name or * is not enough"
        ) from None
    return str(network if "/" in proxy else network.network_address)


RECORDING_FIELDS = ("camera", "start", "end", "start_iso", "end_iso", "id")
"""What the address of a recording may name in braces."""


def recording_address(url: str) -> str:
    """Validate the address of a recorder's clips."""
    try:
        parsed = [*Formatter().parse(url)]
        named = [field for _, field, _, _ in parsed if field is not None]
        plain = not any(spec or conversion for _, _, spec, conversion in parsed)
    except ValueError:
        named, plain = [""], False
    if not plain or not set(named) <= set(RECORDING_FIELDS):
        known = ", ".join(f"{{{name}}}" for name in RECORDING_FIELDS)
        raise ValueError(
            f"expected only {known} in braces, got another name | "
            "such as http://frigate:5000/api/{camera}/start/{start}/end/{end}/clip.mp4"
        )
    bare = url.format_map(dict.fromkeys(RECORDING_FIELDS, "x"))
    try:
        parts = urlsplit(bare)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        sound = False
    if not sound or urlsplit(url).netloc != parts.netloc:
        raise ValueError(
            "expected http:// or https:// and a fixed host, got another address | "
            "names in braces belong in the path or the query"
        )
    if has_secret(bare):
        raise ValueError(
            "expected an address without credentials, got some in it | "
            "anyone who sees an event sees this address; log in to the recorder in the browser"
        )
    return url


def has_secret(url: str) -> bool:
    """Whether a URL, with its environment variables removed, contains a secret."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    return bool(user.strip(":")) or any(
        re.search(SECRET_NAME, name, re.IGNORECASE) for name, _ in parse_qsl(parts.query)
    )
