"""Verify the certificate of a camera before sending it a password."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from stepvad.errors import ConfigError, DataError, os_reason

logger = logging.getLogger(__name__)

PORTS = {"rtsps": 322, "https": 443}
"""Schemes over TLS, and their default ports."""

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
)
"""Common paths of the system's CA bundle, for when Python finds none."""

LONGEST_LINE = 4096


@dataclass(frozen=True, slots=True)
class CameraTls:
    """How a camera's certificate is verified: with `ca`, or else with the system's CA bundle."""

    ca: Path | None = None
    insecure: bool = False
    """Accept any certificate: any server at that address receives the password."""

    def __post_init__(self) -> None:
        if self.ca is not None and self.insecure:
            raise ConfigError(
                "TLS: expected an authority or no check at all, got both",
                hint="remove tls_insecure, or tls_ca",
            )

    def bundle(self) -> Path:
        """The CA bundle to verify with."""
        bundle = self.ca or _system_bundle()
        if bundle is None:
            raise ConfigError(
                "TLS: expected the system's certificate authorities, got none",
                hint="install ca-certificates, or name a file of authorities as tls_ca",
            )
        return bundle

    def context(self) -> ssl.SSLContext:
        """SSL context that verifies the certificate chain and the host name."""
        bundle = self.bundle()
        try:
            context = ssl.create_default_context(cafile=str(bundle))
        except OSError as error:  # includes ssl.SSLError
            reason = "no certificates" if isinstance(error, ssl.SSLError) else os_reason(error)
            raise ConfigError(
                f"{bundle}: expected certificates of authorities (PEM), got: {reason}",
                hint="name a file with one or more BEGIN CERTIFICATE parts as tls_ca",
            ) from None
        # Strict mode rejects the self-made CA certificates that are common on cameras.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def options(self) -> dict[str, str]:
        """The same as FFmpeg options; by default FFmpeg does not verify certificates."""
        if self.insecure:
            return {"tls_verify": "0"}
        bundle = self.ca or _system_bundle()
        return {"tls_verify": "1"} | ({} if bundle is None else {"ca_file": str(bundle)})


def check_server(av: Any, address: str, tls: CameraTls, timeout_s: float) -> None:
    """Raise if the TLS server at `address` must not receive the password; none is sent here.

    FFmpeg verifies the certificate again when it connects. This check reports why verification
    failed, and rejects RTSP redirects, to which FFmpeg would send the password.
    """
    parts = urlsplit(address)
    if parts.scheme not in PORTS or tls.insecure:
        return
    _check_build(av)
    context = tls.context()
    if os.environ.get("http_proxy"):
        return  # FFmpeg connects through the proxy and verifies on its own
    host, deadline = str(parts.hostname), time.monotonic() + timeout_s
    port = parts.port or PORTS[parts.scheme]
    try:
        with (
            socket.create_connection((host, port), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as server,
        ):
            if parts.scheme == "rtsps":
                _refuse_redirect(parts, _status(server, _described(parts), deadline))
    except ssl.SSLCertVerificationError as error:
        raise _refused(host, tls, error) from None


def _check_build(av: Any) -> None:
    """Reject FFmpeg builds with OpenSSL, which up to version 7 do not verify the host name."""
    metas = av._core.library_meta.values()
    if any("--enable-openssl" in meta["configuration"] for meta in metas):
        raise ConfigError(
            "TLS: expected an FFmpeg that checks host names, got one with OpenSSL",
            hint="install PyAV's own wheels (pip install --force-reinstall --only-binary av av), "
            "or set tls_insecure = true",
        )


def warn_if_insecure(camera: str, address: str, tls: CameraTls) -> None:
    """Log a warning if the camera's certificate is not verified."""
    if tls.insecure and urlsplit(address).scheme in PORTS:
        logger.warning(
            "camera %s: tls_insecure: its certificate is not checked; an impostor would get "
            "the password",
            camera,
        )


def _system_bundle() -> Path | None:
    known = ssl.get_default_verify_paths().cafile
    candidates = [Path(path) for path in (known, *BUNDLES) if path]
    return next((path for path in candidates if path.is_file()), None)


def _described(parts: SplitResult) -> bytes:
    """An RTSP DESCRIBE request without credentials."""
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return f"DESCRIBE {bare} RTSP/1.0\r\nCSeq: 1\r\nAccept: application/sdp\r\n\r\n".encode()


def _status(server: ssl.SSLSocket, request: bytes, deadline: float) -> str:
    """Send a request and return the status line of the response."""
    server.sendall(request)
    answer = b""
    while b"\n" not in answer and len(answer) < LONGEST_LINE:
        server.settimeout(max(deadline - time.monotonic(), 0.001))
        part = server.recv(LONGEST_LINE)
        if not part:
            break
        answer += part
    return answer.partition(b"\r")[0].decode("latin-1")


def _refuse_redirect(parts: SplitResult, status: str) -> None:
    words = status.split()
    if len(words) > 1 and words[1].startswith("3"):
        raise DataError(
            f"{parts.hostname}: expected a stream, got a redirect ({words[1]}), along which the "
            "password would go",
            hint="set url to the address that the camera streams from",
        )


def _refused(host: str, tls: CameraTls, error: ssl.SSLCertVerificationError) -> DataError:
    """The error for a certificate that fails verification."""
    got = error.verify_message.rstrip(".")
    return DataError(
        f"{host}: expected a certificate for {host} by an authority in {tls.bundle()}, got: {got}; "
        "no password was sent",
        hint="name the camera's authority, or its own certificate, as tls_ca; in a trusted "
        "network, set tls_insecure = true",
    )
