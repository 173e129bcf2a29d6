"""The settings of the page: where it listens, who is believed, and how long a log-in lasts."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from stepvad.accounts.users import Role
from stepvad.errors import ConfigError
from stepvad.settings.addresses import network_of, origin_of
from stepvad.settings.section import Beside, Reference, Section

HEADER = r"^[A-Za-z0-9-]{1,64}$"


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
