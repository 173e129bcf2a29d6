"""Certificates and credentials for the NATS client."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TypedDict

from stepvad.errors import ConfigError
from stepvad.files.secrets import secret
from stepvad.fleet.settings import BusSettings, TlsFiles


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
            f"bus.{name}: expected a file that can be read, got {path}: {error.strerror}",
            hint="paths are taken from where the settings file is",
        ) from None
