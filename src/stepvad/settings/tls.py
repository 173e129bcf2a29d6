"""TLS context of a server."""

from __future__ import annotations

import ssl
from pathlib import Path

from stepvad.errors import ConfigError


def server_tls(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer, with a certificate chain and its key as PEM files."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # an empty password keeps OpenSSL from prompting on the terminal for an encrypted key
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        missing = [path for path in (certificate, key) if not path.is_file()]
        reason = f"no file {missing[0]}" if missing else _reason(error)
        raise ConfigError(
            f"web.certificate: expected {certificate} and its key {key}, got: {reason}",
            hint="name PEM files that the site can read: the whole chain, and a key without a "
            "password",
        ) from None
    return context


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return (
            error.reason.replace("_", " ").lower()
            if error.reason
            else "no PEM that opens without a password"
        )
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
