"""Certificates and credentials for the NATS client."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import TypedDict

from stepvad.errors import ConfigError, os_reason
from stepvad.files import secret
from stepvad.fleet.settings import BusSettings, TlsFiles

logger = logging.getLogger(__name__)


class Certificates:
    """The TLS context of certificate files, which may be renewed while it is used."""

    def __init__(self, tls: TlsFiles) -> None:
        self._tls = tls
        self._read = self._refused = _stamps(tls)
        self._context = _context(tls)

    def current(self) -> ssl.SSLContext:
        """The context of the files as they are now, or the last that worked."""
        now = _stamps(self._tls)
        if now not in (self._read, self._refused):
            try:
                self._context = _context(self._tls)
            except ConfigError as error:
                self._refused = now
                logger.warning("%s; keeping the previous certificates", error.problem)
            else:
                self._read = now
                logger.info("broker: certificates renewed")
        return self._context


class Login(TypedDict, total=False):
    """Authentication options of the client."""

    user: str
    password: str
    user_credentials: str
    tls: ssl.SSLContext


def login(settings: BusSettings) -> Login:
    """Credentials and certificates as client options."""
    facts: Login = {}
    if settings.user is not None and settings.password is not None:
        facts["user"], facts["password"] = settings.user, secret(settings.password)
    if settings.credentials is not None:
        _check_readable("credentials", settings.credentials)
        facts["user_credentials"] = str(settings.credentials)
    if settings.tls is not None:
        facts["tls"] = _context(settings.tls)
    elif any(server.startswith("tls://") for server in settings.servers):
        facts["tls"] = ssl.create_default_context()
    return facts


def certificates(settings: BusSettings) -> Certificates | None:
    """The certificate files of the settings; None if they name none."""
    return None if settings.tls is None else Certificates(settings.tls)


def _stamps(tls: TlsFiles) -> tuple[object, ...]:
    """Changes when a file or its permissions do."""
    found: list[object] = []
    for path in (tls.ca, tls.cert, tls.key):
        try:
            facts = None if path is None else path.stat()
        except OSError:
            facts = None
        found.append(facts and (facts.st_ctime_ns, facts.st_size, facts.st_ino))
    return tuple(found)


def _context(tls: TlsFiles) -> ssl.SSLContext:
    for name, path in (("tls.ca", tls.ca), ("tls.cert", tls.cert), ("tls.key", tls.key)):
        if path is not None:
            _check_readable(name, path)
    about = "ca"
    try:
        context = ssl.create_default_context(cafile=str(tls.ca))
        if tls.cert is not None:
            about = "cert and key"
            context.load_cert_chain(tls.cert, tls.key)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"bus.tls: expected {about} in PEM, got: {error}",
            hint="a key belongs to its certificate and has no password",
        ) from None
    return context


def _check_readable(name: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigError(
            f"bus.{name}: expected a file that can be read, got {path}: {os_reason(error)}",
            hint="paths are relative to the settings file",
        ) from None
