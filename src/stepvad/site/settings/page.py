"""Settings of the page, and of messages to people: to whom, when, and how often."""

from __future__ import annotations

import ssl
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from stepvad.errors import ConfigError
from stepvad.files import is_reference
from stepvad.site.accounts import Role
from stepvad.site.settings.section import (
    NAME,
    Beside,
    Hours,
    Reference,
    Section,
    check_distinct,
    network_of,
    origin_of,
    reference,
)

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
    public_url: str | None = Field(
        None,
        description="Public address of the page behind a proxy, such as "
        "https://cameras.example.org.",
    )
    trusted_proxies: list[str] = Field(
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
    login_days: float = Field(30.0, gt=0, description="A log-in ends after this time.")
    user_header: str | None = Field(
        None,
        pattern=HEADER,
        description="Header in which a trusted proxy passes the user's name, such as Remote-User.",
    )
    group_header: str | None = Field(
        None,
        pattern=HEADER,
        description="Header in which the proxy passes the user's groups, such as Remote-Groups.",
    )
    judge_groups: list[str] = Field(
        default_factory=list, description="Groups whose members may judge."
    )
    admin_groups: list[str] = Field(
        default_factory=list, description="Groups whose members may administer."
    )
    sso_role: Role | Literal["none"] = Field(
        "look",
        description="Role of a proxy user without an account or such a group; none: refuse them.",
    )

    @property
    def url(self) -> str:
        """The URL of the page for browsers."""
        scheme = "https" if self.certificate else "http"
        return self.public_url or f"{scheme}://{self.host}:{self.port}"

    @field_validator("public_url")
    @classmethod
    def _public_url(cls, url: str | None) -> str | None:
        return None if url is None else origin_of(url)

    @field_validator("trusted_proxies")
    @classmethod
    def _trusted_proxies(cls, proxies: list[str]) -> list[str]:
        return [network_of(proxy) for proxy in proxies]

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
        if self.group_header is not None and self.user_header is None:
            raise ValueError(
                "expected user_header with group_header, got none | name the header that holds "
                "the user, such as Remote-User"
            )
        if (self.judge_groups or self.admin_groups) and self.group_header is None:
            raise ValueError(
                "expected group_header with judge_groups or admin_groups, got none | name the "
                "header that holds the groups, such as Remote-Groups"
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
        description='Hours without messages, such as ["22:00-06:00"], in the machine\'s time zone.',
    )
    in_quiet_hours: Literal["hold", "drop"] = Field(
        "hold",
        description="hold: one summary when the quiet hours are over; drop: no message at all.",
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
    say_when_over: bool = Field(
        False, description="Send a second, short message when the event is over."
    )

    @property
    def browsers(self) -> bool:
        """Whether browsers get the messages."""
        return BROWSERS in self.to

    def check_names(self, cameras: Collection[str], zones: Collection[str]) -> None:
        """Raise unless every camera and zone named here is one of the site."""
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


def of_people(people: NotifySettings) -> list[str]:
    """Describe who gets which messages, without secrets."""
    to = ", ".join(people.to)
    limits = "; ".join(limits_of(people))
    return [f"to people ({people.name}), events of {concern_of(people)}: {to}", f"  {limits}"]


def concern_of(people: NotifySettings) -> str:
    """Describe of which cameras and zones people hear."""
    where = _either(people.cameras, "camera") if people.cameras else "all cameras"
    return f"{where} in {_either(people.zones, 'zone')}" if people.zones else where


def limits_of(people: NotifySettings) -> list[str]:
    """Describe when people get messages."""
    limits = [f"at most {people.most_per_hour} messages an hour, the rest in one"]
    if people.quiet_hours:
        hours = " and ".join(people.quiet_hours)
        then = "one message after" if people.in_quiet_hours == "hold" else "no message, ever"
        limits.append(f"none from {hours} ({then})")
    if people.repeat_minutes is not None:
        limits.append(
            f"again every {people.repeat_minutes:g} minutes until someone has seen the event, "
            f"at most {people.repeat_times} times"
        )
    if people.say_when_over:
        limits.append("another when it is over")
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
