"""The types of all sections of settings: strict models, references to secrets, addresses."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from string import Formatter
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo

from stepvad.errors import ConfigError, DataError
from stepvad.events.rules import WatchHours
from stepvad.files import SECRET_NAME, is_reference
from stepvad.video.camera import device_of

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"

RECORDING_FIELDS = ("camera", "start", "end", "start_iso", "end_iso", "id")
"""What the address of a recording may name in braces."""


def beside(path: Path, info: ValidationInfo) -> Path:
    """Resolve a path relative to the settings file."""
    directory = (info.context or {}).get("directory")
    return path if directory is None else directory / path.expanduser()


Beside = Annotated[Path, AfterValidator(beside)]


def reference(text: str, info: ValidationInfo) -> str:
    """Validate a reference to a secret; file paths are relative to the settings file."""
    if not is_reference(text):
        raise ValueError(
            "expected env:NAME or file:PATH, got something else | "
            "put the secret into an environment variable or a file and name that here"
        )
    kind, _, rest = text.partition(":")
    return text if kind == "env" else f"file:{beside(Path(rest), info)}"


Reference = Annotated[str, AfterValidator(reference)]


class Section(BaseModel):
    """A table of settings: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def check_distinct(names: Iterable[str]) -> None:
    """Raise if a name occurs twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"expected distinct names, got {twice[0]!r} twice | rename one of them")


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


RecordingAddress = Annotated[str, AfterValidator(recording_address)]


def has_secret(url: str) -> bool:
    """Whether a URL, with its environment variables removed, contains a secret."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    return bool(user.strip(":")) or any(
        re.search(SECRET_NAME, name, re.IGNORECASE) for name, _ in parse_qsl(parts.query)
    )


def _hours(spans: list[str]) -> list[str]:
    """Validate hours of the day."""
    try:
        WatchHours.parse(spans)
    except ConfigError as error:
        raise ValueError(f"{error.problem} | {error.hint}") from None
    return spans


Hours = Annotated[list[str], AfterValidator(_hours)]
