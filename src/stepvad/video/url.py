"""Addresses of cameras whose credentials never show."""

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
from stepvad.video.tls import Tls

SCHEMES = ("rtsp", "rtsps", "http", "https")

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Url:
    """The address of a camera; `str` and `repr` hide its credentials, `reveal` does not.

    Credentials stand in the address (`rtsp://user:password@host/path`), in environment variables
    that it names (`rtsp://${CAMERA_USER}:${CAMERA_PASSWORD}@host/path`) or in a file with one line
    `user:password`, which nobody but its owner and group may read. `tls` says how the certificate
    is checked of whoever answers there.
    """

    __slots__ = ("_real", "_secrets", "_shown", "tls")

    _real: str
    _secrets: tuple[str, ...]
    _shown: str
    tls: Tls

    def __init__(
        self,
        text: str,
        *,
        credentials: Path | None = None,
        environment: Mapping[str, str] | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.tls = tls or Tls()
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
        """Whether whoever answers may ask for a user name and password, and get them."""
        return "@" in urlsplit(self._real).netloc

    def reveal(self) -> str:
        """The address with its credentials, for the library that connects and for nobody else."""
        return self._real

    def redact(self, text: str) -> str:
        """The text with these and all other credentials hidden."""
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
    """The environment variables that an address names."""
    names = _PLACEHOLDER.findall(text)
    missing = [name for name in names if name not in environment]
    if missing:
        raise DataError(
            f"camera address: expected the environment variable {missing[0]}, got none",
            hint="set it, or write the address without ${...}",
        )
    return {name: environment[name] for name in names}


def _expanded(text: str, values: Mapping[str, str]) -> str:
    """The address with the variables filled in, encoded where they are credentials."""
    start, end = text.find("://") + 3, text.rfind("@")
    separate = ":" in text[start:end]  # ${USER}:${PASSWORD}, not ${USER_AND_PASSWORD}

    def value(match: re.Match[str]) -> str:
        plain = values[match[1]]
        if not 3 <= start <= match.start() < end:
            return plain
        return quote(plain, safe="" if separate else ":")

    return _PLACEHOLDER.sub(value, text)


def _checked(text: str) -> SplitResult:
    """The parts of an address of a camera, or an error that does not show it."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or any(c.isspace() or not c.isprintable() for c in text):
        # Where a broken address ends its password nobody knows: none of it may show.
        scheme = re.match(r"[a-z]+(?=://)", text)
        raise DataError(
            f"camera address: expected {', '.join(f'{s}://' for s in SCHEMES)} and a host, got "
            f"{f'{scheme[0]}:// and something else' if scheme else 'something else'}",
            hint="write / @ : # ? and % in a user name or password as %2F %40 %3A %23 %3F %25",
        ) from None
    return parts


def _read_credentials(path: Path) -> str:
    """`user:password` from a file, encoded for an address."""
    text = secret_line(path, "user:password")
    user, colon, password = text.partition(":")
    if not (user and colon):
        raise ConfigError(
            f"{path}: expected user:password, got a line {'with' if colon else 'without'} a colon",
            hint="write user name, colon, password and nothing else",
        )
    return f"{quote(user, safe='')}:{quote(password, safe='')}"


def _with_credentials(parts: SplitResult, userinfo: str) -> str:
    """The address with the credentials put in front of its host."""
    if "@" in parts.netloc:
        raise DataError(
            "camera address: expected credentials in the address or in a file, got both",
            hint="remove them from the address",
        )
    return parts._replace(netloc=f"{userinfo}@{parts.netloc}").geturl()


def _secrets(parts: SplitResult) -> list[str]:
    """What nobody may see: the password, the user name with it, and such values in the query."""
    userinfo = parts.netloc.rpartition("@")[0]
    user, _, password = userinfo.partition(":")
    found = [userinfo, password]
    found += [base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()]
    names = re.compile(SECRET_NAME, re.IGNORECASE)
    found += [value for name, value in parse_qsl(parts.query) if names.search(name)]
    return found if userinfo else found[3:]


def _variants(secrets: list[str]) -> tuple[str, ...]:
    """Secrets as written, encoded and decoded, the longest first."""
    forms = {form for s in secrets for form in (s, unquote(s), quote(s, safe=""), quote(s))}
    return tuple(sorted(forms - {""}, key=len, reverse=True))
