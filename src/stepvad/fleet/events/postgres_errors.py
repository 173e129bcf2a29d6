"""Classify errors of PostgreSQL and its client: retry, bad data, or wrong settings."""

from __future__ import annotations

from typing import Literal

PostgresMeaning = Literal["retry", "data", "settings"]
"""`retry`: it may work later. `data`: this row will never work. `settings`: nothing works until
an operator changes them."""

LOCKED = "55P03"
"""A lock was not released in time."""
BY_SQLSTATE: dict[str, PostgresMeaning] = {
    "08": "retry",  # connection
    "22": "data",
    "23": "data",  # a constraint
    "25006": "retry",  # read-only: the server was demoted, another is the primary now
    "25P03": "retry",  # idle in a transaction for too long: this process was paused
    "25P04": "retry",  # a transaction that took too long
    "28": "retry",  # password or pg_hba.conf: changed on one side first
    "3D000": "settings",  # no such database
    "40": "retry",  # deadlock, serialisation
    "42501": "settings",  # the role may not do this
    "53": "retry",  # disk, memory or connections used up
    LOCKED: "retry",
    "57": "retry",  # shut down, starting, cancelled
    "58": "retry",  # the server's disk or system failed
}
"""Keyed by the full SQLSTATE, or else by its class, the first two characters."""


def meaning(error: BaseException) -> PostgresMeaning | None:
    """Classify an error; None if it matches nothing, which means a bug."""
    state = getattr(error, "sqlstate", None)
    if state is not None:
        return BY_SQLSTATE.get(state) or BY_SQLSTATE.get(state[:2])
    return next((found for kind, found in by_class() if isinstance(error, kind)), None)


def by_class() -> tuple[tuple[type[BaseException], PostgresMeaning], ...]:
    """Errors raised by the client itself, without SQLSTATE; the first match decides."""
    import asyncpg

    return (
        (OSError, "retry"),  # before ValueError: an untrusted certificate raises both
        (TimeoutError, "retry"),
        (asyncpg.exceptions.ClientConfigurationError, "settings"),
        (ValueError, "data"),  # a value that the client cannot encode
        (asyncpg.InterfaceError, "retry"),
        (asyncpg.InternalClientError, "retry"),
    )


def is_data(error: BaseException) -> bool:
    """Whether the database rejected the data and always will."""
    return meaning(error) == "data"


def is_read_only(error: BaseException) -> bool:
    """Whether the server is read-only, as after a failover; new connections reach the primary."""
    return getattr(error, "sqlstate", None) == "25006"


def expected(error: BaseException) -> tuple[str, str]:
    """The expected condition for an error message, and its hint."""
    state = getattr(error, "sqlstate", None) or ""
    match state:
        case "42501":
            hint = "choose the role in the dsn; --migrate needs one that may create tables"
            return "database: expected a role that may do this", hint
        case "3D000":
            hint = "make it first, with createdb or CREATE DATABASE"
            return "database: expected one of that name", hint
        case _ if meaning(error) == "settings":
            return "events.dsn: expected a usable one", ""
        case _ if state.startswith("28"):
            hint = "check user, password or certificate in events.dsn, and pg_hba.conf"
            return "database: expected an answer", hint
        case "25006":
            return "database: expected a server that writes", "does events.dsn name the primary?"
    return "database: expected an answer", "are host and port in events.dsn right, and is it up?"


def words(error: BaseException) -> str:
    """The error as one short line."""
    told = error.strerror if isinstance(error, OSError) else str(error)
    return (told or str(error) or type(error).__name__)[:200]
