"""Who we are on the bus: certificates and credentials, as the client takes them."""

from __future__ import annotations

import ssl
from typing import Any

from stepvad.errors import ConfigError
from stepvad.fleet.settings import BusSettings
from stepvad.secrets import secret


def login(settings: BusSettings) -> dict[str, Any]:
    """Credentials and certificates, as the client takes them."""
    facts: dict[str, Any] = {}
    if settings.user is not None and settings.password is not None:
        facts |= {"user": settings.user, "password": secret(settings.password)}
    if settings.credentials is not None:
        facts["user_credentials"] = str(settings.credentials)
    if settings.tls is not None:
        try:
            context = ssl.create_default_context(cafile=str(settings.tls.ca))
            if settings.tls.cert is not None:
                context.load_cert_chain(settings.tls.cert, settings.tls.key)
        except OSError as error:
            raise ConfigError(
                f"bus.tls: expected certificates in PEM, got: {error.strerror or error}",
                hint="check the files that ca, cert and key name",
            ) from None
        facts["tls"] = context
    return facts
