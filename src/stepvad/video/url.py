"""Addresses of cameras: credentials stay out of logs, certificates are checked."""

from __future__ import annotations

import base64
import logging
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from stepvad.errors import ConfigError, DataError, os_reason
from stepvad.files import HIDDEN, SECRET_NAME, redact, secret_line

if TYPE_CHECKING:
    from ssl import SSLContext

logger = logging.getLogger(__name__)

SCHEMES = ("rtsp", "rtsps", "http", "https")
PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

PORTS = {"rtsps": 322, "https": 443}
"""Schemes over TLS, and their default ports."""
USUAL_PORTS = {"rtsp": 554, "http": 80, **PORTS}
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
)
"""Common paths of the system's CA bundle, for when Python finds none."""
LONGEST_LINE = 4096


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
        # ${NAME} from the environment, then credentials from a file, each checked as an address
        values = _named_values(text, os.environ if environment is None else environment)
        real = _expanded(text, values)
        parts = _checked(real)
        if credentials is not None:
            real = _with_credentials(parts, _read_credentials(credentials))
            parts = _checked(real)
        self._real = real
        # secrets as written, percent-encoded and decoded, the longest first
        secrets = [*values.values(), *_secrets(parts)]
        forms = {form for s in secrets for form in (s, unquote(s), quote(s, safe=""), quote(s))}
        self._secrets = tuple(sorted(forms - {""}, key=len, reverse=True))
        self._shown = self.redact(real)

    @property
    def scheme(self) -> str:
        """`rtsp`, `rtsps`, `http` or `https`."""
        return urlsplit(self._real).scheme

    @property
    def has_password(self) -> bool:
        """True if the URL has credentials, which are sent to a server that asks for them."""
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

    def context(self) -> SSLContext:
        """SSL context that verifies the certificate chain and the host name."""
        import ssl  # which a camera without TLS never needs

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
    """Raise if the server at `address` must not receive the password; none is sent here.

    FFmpeg verifies a certificate again when it connects. This check reports why verification
    failed, and rejects RTSP redirects, which FFmpeg would follow with the password.
    """
    parts = urlsplit(address)
    if tls.insecure or parts.scheme == "http":
        return
    context = None
    if parts.scheme in PORTS:
        _check_build(av)
        context = tls.context()
    if os.environ.get("http_proxy"):
        return  # FFmpeg connects through the proxy and verifies on its own
    host, deadline = str(parts.hostname), time.monotonic() + timeout_s
    port = parts.port or USUAL_PORTS[parts.scheme]
    try:
        with socket.create_connection((host, port), timeout_s) as plain:
            server = plain if context is None else context.wrap_socket(plain, server_hostname=host)
            # the certificate is good; where would a stream come from?
            with server:
                if parts.scheme != "https":
                    _refuse_redirect(parts, _status(server, _described(parts), deadline))
    except OSError as error:
        if why := getattr(error, "verify_message", ""):  # only a certificate's error has one
            raise _refused(host, tls, why) from None
        raise


def warn_if_insecure(camera: str, address: str, tls: CameraTls) -> None:
    """Log a warning if the camera's certificate is not verified."""
    if tls.insecure and urlsplit(address).scheme in PORTS:
        logger.warning(
            "camera %s: tls_insecure: its certificate is not checked; an impostor would get "
            "the password",
            camera,
        )


def _named_values(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables named in a URL, with their values."""
    names = PLACEHOLDER.findall(text)
    missing = [name for name in names if name not in environment]
    if missing:
        raise DataError(
            f"camera address: expected the environment variable {missing[0]}, got none",
            hint="set it, or write the address without ${...}",
        )
    return {name: environment[name] for name in names}


def _expanded(text: str, values: Mapping[str, str]) -> str:
    """Substitute the variables, percent-encoded where they are credentials."""
    # credentials stand between the scheme and the last @
    start, end = text.find("://") + 3, text.rfind("@")
    separate = ":" in text[start:end]  # ${USER}:${PASSWORD}, not ${USER_AND_PASSWORD}

    def value(match: re.Match[str]) -> str:
        plain = values[match[1]]
        if not 3 <= start <= match.start() < end:
            return plain
        return quote(plain, safe="" if separate else ":")

    return PLACEHOLDER.sub(value, text)


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
    # as written, and as HTTP sends them
    userinfo = parts.netloc.rpartition("@")[0]
    user, _, password = userinfo.partition(":")
    found = [userinfo, password]
    found += [base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()]
    names = re.compile(SECRET_NAME, re.IGNORECASE)
    found += [value for name, value in parse_qsl(parts.query) if names.search(name)]
    return found if userinfo else found[3:]


def _check_build(av: Any) -> None:
    """Reject FFmpeg builds with OpenSSL, which up to version 7 do not verify the host name."""
    metas = av._core.library_meta.values()
    if any("--enable-openssl" in meta["configuration"] for meta in metas):
        raise ConfigError(
            "TLS: expected an FFmpeg that checks host names, got one with OpenSSL",
            hint="install PyAV's own wheels (pip install --force-reinstall --only-binary av av), "
            "or set tls_insecure = true",
        )


def _system_bundle() -> Path | None:
    import ssl

    known = ssl.get_default_verify_paths().cafile
    candidates = [Path(path) for path in (known, *BUNDLES) if path]
    return next((path for path in candidates if path.is_file()), None)


def _described(parts: SplitResult) -> bytes:
    """An RTSP DESCRIBE request without credentials."""
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return f"DESCRIBE {bare} RTSP/1.0\r\nCSeq: 1\r\nAccept: application/sdp\r\n\r\n".encode()


def _status(server: socket.socket, request: bytes, deadline: float) -> str:
    """Send a request and return the status line of the response."""
    # bytes up to the end of the first line, however slowly they come
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


def _refused(host: str, tls: CameraTls, why: str) -> DataError:
    """The error for a certificate that fails verification."""
    got = why.rstrip(".")
    return DataError(
        f"{host}: expected a certificate for {host} by an authority in {tls.bundle()}, got: {got}; "
        "no password was sent",
        hint="name the camera's authority, or its own certificate, as tls_ca; in a trusted "
        "network, set tls_insecure = true",
    )
