"""Camera URLs that never show their credentials."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from stepvad.errors import ConfigError, DataError
from stepvad.files.redaction import HIDDEN, SECRET_NAME, redact
from stepvad.files.secrets import secret_line
from stepvad.video.tls import CameraTls

SCHEMES = ("rtsp", "rtsps", "http", "https")

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Url:
    """The URL of a camera; `str` and `repr` hide its credentials, `reveal` does not.

    Credentials come from the URL (`rtsp://user:password@host/path`), from environment variables
    that it names (`rtsp://${CAMERA_USER}:${CAMERA_PASSWORD}@host/path`) or from a file with one
    line `user:password`, readable by its owner and group only. `tls` sets how the server's
    certificate is verified.
    """

    __slots__ = ("_real", "_secrets", "_shown", "tls")

    _real: str
    _secrets: tuple[str, ...]
    _shown: str
    tls: CameraTls

    def __init__(
        self,
        text: str,
        *,
        credentials: Path | None = None,
        environment: Mapping[str, str] | None = None,
        tls: CameraTls | None = None,
    ) -> None:
        self.tls = tls or CameraTls()
        values = _named_values(text, os.environ if environment is None else environment)
        real = _expanded(text, values)
        parts = _checked(real)
        if credentials is not None:
            real = _with_credentials(parts, _read_credentials(credentials))
            parts = _checked(real)
        self._real = real
        self._secrets = _variants([*values.values(), *_secrets(parts)])
        self._shown = self.redact(real)

    @property
    def scheme(self) -> str:
        """`rtsp`, `rtsps`, `http` or `https`."""
        return urlsplit(self._real).scheme

    @property
    def has_password(self) -> bool:
        """Whether the URL has credentials, which are sent to a server that asks for them."""
        return "@" in urlsplit(self._real).netloc

    def reveal(self) -> str:
        """The URL with its credentials; pass it only to the library that connects."""
        return self._real

    def redact(self, text: str) -> str:
        """Hide these and any other credentials in a text."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return redact(text)

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return f"Url({self._shown!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self._real == other._real and self.tls == other.tls

    def __hash__(self) -> int:
        return hash(self._real)


def _named_values(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables named in a URL, with their values."""
    names = _PLACEHOLDER.findall(text)
    missing = [name for name in names if name not in environment]
    if missing:
        raise DataError(
            f"camera address: expected the environment variable {missing[0]}, got none",
            hint="set it, or write the address without ${...}",
        )
    return {name: environment[name] for name in names}


def _expanded(text: str, values: Mapping[str, str]) -> str:
    """Substitute the variables, percent-encoded where they are credentials."""
    start, end = text.find("://") + 3, text.rfind("@")
    separate = ":" in text[start:end]  # ${USER}:${PASSWORD}, not ${USER_AND_PASSWORD}

    def value(match: re.Match[str]) -> str:
        plain = values[match[1]]
        if not 3 <= start <= match.start() < end:
            return plain
        return quote(plain, safe="" if separate else ":")

    return _PLACEHOLDER.sub(value, text)


def _checked(text: str) -> SplitResult:
    """Split a camera URL; raises an error that does not show it."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or any(c.isspace() or not c.isprintable() for c in text):
        # The password of a malformed URL cannot be located: show none of the URL.
        scheme = re.match(r"[a-z]+(?=://)", text)
        raise DataError(
            f"camera address: expected {', '.join(f'{s}://' for s in SCHEMES)} and a host, got "
            f"{f'{scheme[0]}:// and something else' if scheme else 'something else'}",
            hint="write / @ : # ? and % in a user name or password as %2F %40 %3A %23 %3F %25",
        ) from None
    return parts


def _read_credentials(path: Path) -> str:
    """Read `user:password` from a file, percent-encoded for a URL."""
    text = secret_line(path, "user:password")
    user, colon, password = text.partition(":")
    if not (user and colon):
        raise ConfigError(
            f"{path}: expected user:password, got a line {'with' if colon else 'without'} a colon",
            hint="write user name, colon, password and nothing else",
        )
    return f"{quote(user, safe='')}:{quote(password, safe='')}"


def _with_credentials(parts: SplitResult, userinfo: str) -> str:
    """Insert the credentials in front of the host."""
    if "@" in parts.netloc:
        raise DataError(
            "camera address: expected credentials in the address or in a file, got both",
            hint="remove them from the address",
        )
    return parts._replace(netloc=f"{userinfo}@{parts.netloc}").geturl()


def _secrets(parts: SplitResult) -> list[str]:
    """Secrets to hide: the password, the user name with it, and secret query parameters."""
    userinfo = parts.netloc.rpartition("@")[0]
    user, _, password = userinfo.partition(":")
    found = [userinfo, password]
    found += [base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()]
    names = re.compile(SECRET_NAME, re.IGNORECASE)
    found += [value for name, value in parse_qsl(parts.query) if names.search(name)]
    return found if userinfo else found[3:]


def _variants(secrets: list[str]) -> tuple[str, ...]:
    """Secrets as written, percent-encoded and decoded, longest first."""
    forms = {form for s in secrets for form in (s, unquote(s), quote(s, safe=""), quote(s))}
    return tuple(sorted(forms - {""}, key=len, reverse=True))
