"""Settings of the page and of messages to people, and the types that all sections share."""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from stepvad.errors import ConfigError, DataError
from stepvad.events.rules import WatchHours
from stepvad.files import SECRET_NAME, is_reference
from stepvad.site.accounts import Role
from stepvad.video.camera import device_of

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"

RECORDING_FIELDS = ("camera", "start", "end", "start_iso", "end_iso", "id")
"""Fields that the address of a recording may name in braces."""


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


def is_loopback(host: str) -> bool:
    """True if an address is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
    # the port is left out where browsers leave it out
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
    bare = re.sub("{(" + "|".join(RECORDING_FIELDS) + ")}", "x", url)
    if "{" in bare or "}" in bare:
        known = ", ".join(f"{{{name}}}" for name in RECORDING_FIELDS)
        raise ValueError(
            f"expected only {known} in braces, got another name | "
            "such as http://frigate:5000/api/{camera}/start/{start}/end/{end}/clip.mp4"
        )
    # the host must be the same whatever the names stand for: a browser follows this address
    if not re.fullmatch(r"https?://[^/?#{}\s]+([/?#].*)?", url) or not urlsplit(bare).hostname:
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
    """True if a URL, with its environment variables removed, contains a secret."""
    # user and password, or a query such as ?token=
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    return bool(user.strip(":")) or any(
        re.search(SECRET_NAME, name, re.IGNORECASE) for name, _ in parse_qsl(parts.query)
    )


def hours_of_day(spans: list[str]) -> list[str]:
    """Validate hours of the day, such as `22:00-06:00`."""
    try:
        WatchHours.parse(spans)
    except ConfigError as error:
        raise ValueError(f"{error.problem} | {error.hint}") from None
    return spans


Hours = Annotated[list[str], AfterValidator(hours_of_day)]

HEADER = r"^[A-Za-z0-9-]{1,64}$"

BROWSERS = "browsers"
"""The target that stands for all browsers in which somebody asked for notifications."""
MOST_TARGETS = 16


class Web(Section):
    """The web page."""

    enabled: bool = Field(True, description="Serve the page.")
    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 means all.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 means any free port.")
    token: Reference | None = Field(
        None,
        description="env:NAME or file:PATH; by default a token is created in the data directory.",
    )
    public_url: Annotated[str, AfterValidator(origin_of)] | None = Field(
        None,
        description="Public address of the page behind a proxy, such as "
        "https://cameras.example.org.",
    )
    trusted_proxies: list[Annotated[str, AfterValidator(network_of)]] = Field(
        default_factory=list,
        description="Addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto "
        "are trusted.",
    )
    certificate: Beside | None = Field(
        None, description="PEM file with the certificate chain, to serve TLS directly."
    )
    key: Beside | None = Field(None, description="PEM file with the key of the certificate.")
    accounts: Beside | None = Field(
        None,
        description="File of the accounts and the audit log; defaults to accounts.db in the data "
        "directory. The page of a fleet has accounts only if this is set.",
    )
    audit_days: float = Field(90.0, gt=0, description="How long the audit log is kept.")
    user_header: str | None = Field(
        None,
        pattern=HEADER,
        description="Header in which a trusted proxy passes the user's name, such as Remote-User.",
    )
    sso_role: Role | Literal["none"] = Field(
        "look",
        description="Role of a proxy user without an account; none: refuse them.",
    )

    @property
    def url(self) -> str:
        """The URL of the page for browsers."""
        scheme = "https" if self.certificate else "http"
        return self.public_url or f"{scheme}://{self.host}:{self.port}"

    @model_validator(mode="after")
    def _tls(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError(
                "expected certificate and key, got one of them | name both files, or none of them"
            )
        is_https = (self.public_url or "").startswith("https:")
        if is_https and self.certificate is None and not self.trusted_proxies:
            raise ValueError(
                "expected trusted_proxies with an https public_url, got none | name the address of "
                "the proxy, 127.0.0.1 if it runs on this machine"
            )
        return self

    @model_validator(mode="after")
    def _sign_on(self) -> Self:
        if self.user_header is not None and not self.trusted_proxies:
            raise ValueError(
                "expected trusted_proxies with user_header, got none | "
                "name the address of the proxy that logs people in; only it may pass user names"
            )
        return self


def _target(text: str, info: ValidationInfo) -> str:
    if text == BROWSERS:
        return text
    if not is_reference(text):
        raise ValueError(
            f"expected {BROWSERS}, env:NAME or file:PATH, got something else | put the address "
            "(ntfys://, mailtos://, tgram://...) into an environment variable or a file and name "
            "that here: it holds a secret"
        )
    return reference(text, info)


Target = Annotated[str, AfterValidator(_target)]


class NotifySettings(Section):
    """People who get a message when an event starts."""

    name: str = Field("people", pattern=NAME, description="Unique name of the group.")
    to: list[Target] = Field(
        min_length=1,
        max_length=MOST_TARGETS,
        description='"browsers" for every browser in which someone pressed "Notify this browser", '
        "and references to Apprise addresses (ntfys://, mailtos://, tgram:// and others) "
        "as env:NAME or file:PATH, because they contain secrets.",
    )
    cameras: list[str] = Field(
        default_factory=list, max_length=1000, description="Only these cameras; empty: all."
    )
    zones: list[str] = Field(
        default_factory=list, max_length=1000, description="Only events in these zones; empty: all."
    )
    quiet_hours: Hours = Field(
        default_factory=list,
        max_length=24,
        description='Hours without messages, such as ["22:00-06:00"], in the machine\'s time zone; '
        "one summary follows.",
    )
    most_per_hour: int = Field(
        12,
        ge=1,
        le=1000,
        description="Messages per hour at most; further events are combined into one.",
    )
    repeat_minutes: float | None = Field(
        None,
        gt=0,
        le=1440,
        description="Repeat the message at this interval until someone has seen the event.",
    )
    repeat_times: int = Field(
        3, ge=1, le=100, description="Number of repeats, with repeat_minutes."
    )
    troubles: bool = Field(
        True,
        description="Say what is wrong with the site or a camera, and when it is over, "
        "in quiet hours, too.",
    )

    @property
    def browsers(self) -> bool:
        """True if browsers get the messages."""
        return BROWSERS in self.to

    @property
    def quiet(self) -> WatchHours:
        """Hours without messages."""
        return WatchHours.parse(self.quiet_hours)

    @property
    def repeat_s(self) -> float:
        """Seconds between repeats; 0 without any."""
        return 60.0 * (self.repeat_minutes or 0.0)

    def hears_of(self, camera: str) -> bool:
        """True if people hear of a trouble of this camera, or of the site without one."""
        return self.troubles and not (self.cameras and camera and camera not in self.cameras)

    def concerns(self, camera: str, zones: Iterable[str]) -> bool:
        """True if people hear of an event of this camera in these zones."""
        is_named = not self.cameras or camera in self.cameras
        return is_named and (not self.zones or not {*self.zones}.isdisjoint(zones))

    def check_names(self, cameras: Collection[str], zones: Collection[str]) -> None:
        """Raise unless every camera and zone named here is one of the site."""
        # names of the site, so that a typing error is no silence
        for noun, named, known in (("camera", self.cameras, cameras), ("zone", self.zones, zones)):
            unknown = [name for name in named if name not in known]
            if unknown:
                there = ", ".join(dict.fromkeys(known)) or "none"
                raise ValueError(
                    f"sinks.notify {self.name}: expected {noun}s of the site, got {unknown[0]!r} | "
                    f"its {noun}s: {there}"
                )

    @field_validator("to")
    @classmethod
    def _distinct(cls, to: list[str]) -> list[str]:
        check_distinct(to)
        return to


def server_tls(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer, with a certificate chain and its key as PEM files."""
    # errors name the file and the reason
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


def concern_of(people: NotifySettings) -> str:
    """Describe of which cameras and zones people hear."""
    where = _either(people.cameras, "camera") if people.cameras else "all cameras"
    return f"{where} in {_either(people.zones, 'zone')}" if people.zones else where


def limits_of(people: NotifySettings) -> list[str]:
    """Describe when people get messages."""
    limits = [f"at most {people.most_per_hour} messages an hour, the rest in one"]
    if people.quiet_hours:
        hours = " and ".join(people.quiet_hours)
        limits.append(f"none from {hours} (one message after)")
    if people.repeat_minutes is not None:
        limits.append(
            f"again every {people.repeat_minutes:g} minutes until someone has seen the event, "
            f"at most {people.repeat_times} times"
        )
    return limits


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return (
            error.reason.replace("_", " ").lower()
            if error.reason
            else "no PEM that opens without a password"
        )
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _either(names: list[str], noun: str) -> str:
    return f"{noun}{'' if len(names) == 1 else 's'} {', '.join(names)}"
