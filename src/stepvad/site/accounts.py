"""Accounts: users, roles, passwords, log-in links and the audit log, in one database."""

from __future__ import annotations

import hashlib
import re
import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from stepvad.errors import ConfigError, DataError, MissingExtraError
from stepvad.site.store.database import Database, Layout

Role = Literal["look", "judge", "administer"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Each role includes those before it."""
NAME = r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$"
"""Names of users; those of a proxy are often mail addresses."""
RESERVED = frozenset({"token"})

LINK_S = 24 * 3600.0
"""Life of a log-in link: somebody reads the message the next day."""
FIRST_LINK_S = 3600.0
"""Life of the link in the log of a new site; whoever reads the log could use it."""
_ACCOUNTS = """
SELECT name, role, stamp, password IS NOT NULL, created, last_login,
    (SELECT max(expires) FROM links WHERE links.user = users.name AND expires > ?) FROM users
"""

SHORTEST_PASSWORD = 10
LONGEST_PASSWORD = 256

MOST_ROWS = 100_000
MOST_FAILED = 10_000
"""Failed log-ins have a limit of their own: a stranger must not push everything else out."""
AUDIT_DAYS = 90.0
PRUNE_EVERY = 100
"""Old rows are deleted with every so many new ones."""
LONGEST_TEXT = 200
FAILED = "failed log-in"

FILE_NAME = "accounts.db"
"""Name of the file in the data directory of a site."""
BUSY_S = 5.0
"""Timeout for the write lock; a change takes milliseconds."""
_TABLES = """
CREATE TABLE users (
    name TEXT PRIMARY KEY COLLATE NOCASE,
    role TEXT NOT NULL,
    password TEXT,
    stamp TEXT NOT NULL,
    created REAL NOT NULL,
    last_login REAL
) WITHOUT ROWID;
CREATE TABLE links (
    hash TEXT PRIMARY KEY,
    user TEXT COLLATE NOCASE REFERENCES users (name) ON DELETE CASCADE,
    expires REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE ended (session TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    time REAL NOT NULL,
    user TEXT NOT NULL,
    address TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL
);
CREATE INDEX audit_by_action ON audit (action, seq)
"""
ACCOUNTS = Layout(
    what="accounts",
    application_id=0x53564143,  # "SVAC"
    tables=_TABLES,
    hint="name another file with accounts under [web]",
    repair="stop the page and put back a copy of the file",
)


class Accounts:
    """The accounts of a page; without a path they are in memory, and nobody can be added."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        audit_days: float = AUDIT_DAYS,
        later: bool = False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`later`: a file that cannot be used now is opened by the first write that can."""
        self._database = Database(path, ACCOUNTS, later=later, busy_s=BUSY_S)
        self._wall = wall
        self.path = path
        self.audit = AuditLog(self._database, days=audit_days, wall=wall)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def all(self) -> list[Account]:
        """All accounts by name."""
        return [
            _account(row) for row in self._database.rows(f"{_ACCOUNTS} ORDER BY name", self._wall())
        ]

    def is_empty(self) -> bool:
        """True if there is no account."""
        return not self._database.rows("SELECT 1 FROM users LIMIT 1")

    def find(self, name: str) -> Account | None:
        """The account of this name, in upper or lower case."""
        with self._database.snapshot() as connection:
            return _found(connection, name, self._wall())

    def password_hash(self, name: str) -> str | None:
        """The hash of an account's password; None if there is no such account or no password."""
        found = self._database.rows("SELECT password FROM users WHERE name = ?", name)
        return found[0][0] if found else None

    def create(self, name: str, role: Role, password_hash: str | None = None) -> Account:
        """Add an account; without a password its owner needs a link."""
        check_name(name)
        if self.path is None:
            raise ConfigError(
                "web.accounts: expected a file to keep accounts in, got none",
                hint="name one under [web] in the settings, and restart the page",
            )
        with self._database.transaction() as connection:
            # one name in upper and lower case
            if _found(connection, name, 0) is not None:
                raise ConfigError(
                    f"user {name}: expected a new name, got one that is taken",
                    hint="stepvad users list shows all of them",
                )
            connection.execute(
                "INSERT INTO users (name, role, password, stamp, created) VALUES (?, ?, ?, ?, ?)",
                (name, role_of(role), password_hash, _stamp(), self._wall()),
            )
            connection.execute("DELETE FROM links WHERE user IS NULL")  # of the first log-in
        return self.account(name)

    def account(self, name: str) -> Account:
        """The account of this name; raises if there is none."""
        found = self.find(name)
        if found is None:
            raise _unknown(name)
        return found

    def set_role(self, name: str, role: Role) -> Account:
        """Change a role; it counts from the next request on."""
        self._change("UPDATE users SET role = ? WHERE name = ?", role_of(role), name)
        return self.account(name)

    def set_password(self, name: str, password_hash: str) -> Account:
        """Change a password; all log-ins with the one before end."""
        self._change(
            "UPDATE users SET password = ?, stamp = ? WHERE name = ?",
            *(password_hash, _stamp(), name),
        )
        return self.account(name)

    def remove(self, name: str) -> None:
        """Remove an account with its links; its log-ins end."""
        self._change("DELETE FROM users WHERE name = ?", name)

    def logged_in(self, name: str) -> None:
        """Note the time of a log-in."""
        self._change("UPDATE users SET last_login = ? WHERE name = ?", self._wall(), name)

    def new_link(self, name: str) -> str:
        """A new key for an account; earlier ones are worthless from then on."""
        account = self.account(name)
        return self._new_key(account.name, LINK_S)

    def first_link(self) -> str | None:
        """A new key for the first log-in; None if there are accounts or somebody has used one."""
        if not self.is_empty() or self.fact("first") is not None:
            return None
        return self._new_key(None, FIRST_LINK_S)

    def link(self, key: str) -> Link | None:
        """The link of a key; None if it was used, replaced or has expired."""
        with self._database.snapshot() as connection:
            return _link(connection, key, self._wall())

    def use_link(self, key: str, password_hash: str) -> Account | None:
        """Choose a password with a key, once; None if the key is worthless."""
        with self._database.transaction() as connection:
            # checked and used up in one transaction
            link = _link(connection, key, self._wall())
            if link is None or link.account is None:
                return None
            name = link.account.name
            # a key is good once, and older ones and log-ins end with it
            connection.execute("DELETE FROM links WHERE user = ?", (name,))
            connection.execute(
                "UPDATE users SET password = ?, stamp = ? WHERE name = ?",
                (password_hash, _stamp(), name),
            )
            return _found(connection, name, self._wall())

    def use_first_link(self, key: str) -> bool:
        """True if a key is good for the first log-in; it is not a second time."""
        with self._database.transaction() as connection:
            link = _link(connection, key, self._wall())
            if link is None or link.account is not None:
                return False
            connection.execute("DELETE FROM links WHERE user IS NULL")
            _set_fact(connection, "first", "used")
            return True

    def fact(self, name: str) -> str | None:
        """A stored fact, such as the `url` of the page."""
        found = self._database.rows("SELECT value FROM facts WHERE name = ?", name)
        return str(found[0][0]) if found else None

    def set_fact(self, name: str, value: str) -> None:
        """Store a fact."""
        with self._database.transaction() as connection:
            _set_fact(connection, name, value)

    def end_session(self, id: str, until: float) -> None:
        """Note that a session has ended, until it would have ended by itself."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM ended WHERE until < ?", (self._wall(),))
            connection.execute("INSERT OR REPLACE INTO ended VALUES (?, ?)", (id, until))

    def has_ended(self, id: str) -> bool:
        """True if a session was ended."""
        return bool(self._database.rows("SELECT 1 FROM ended WHERE session = ?", id))

    def _new_key(self, name: str | None, lasts_s: float) -> str:
        # only its hash is stored: who reads the file cannot log in with it
        key = secrets.token_urlsafe(32)
        with self._database.transaction() as connection:
            connection.execute(
                "DELETE FROM links WHERE user IS ? OR expires <= ?", (name, self._wall())
            )
            connection.execute(
                "INSERT INTO links (hash, user, expires) VALUES (?, ?, ?)",
                (_hash(key), name, self._wall() + lasts_s),
            )
        return key

    def _change(self, statement: str, *values: str | float) -> None:
        """Change the account whose name is the last value."""
        if not self._database.change(statement, *values):
            raise _unknown(str(values[-1]))


class AuditLog:
    """Appends and reads the lines; bounded by days and by rows."""

    def __init__(
        self,
        database: Database,
        *,
        days: float = AUDIT_DAYS,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._database, self._days, self._wall = database, days, wall
        self._added = 0

    def record(self, user: str, action: str, subject: str = "", address: str = "") -> None:
        """Append a line; long texts are cut."""
        texts = [text[:LONGEST_TEXT] for text in (user, address, action, subject)]
        self._database.change(
            "INSERT INTO audit (time, user, address, action, subject) VALUES (?, ?, ?, ?, ?)",
            self._wall(),
            *texts,
        )
        if self._added % PRUNE_EVERY == 0:
            self.prune()
        self._added += 1

    def prune(self) -> None:
        """Delete lines that are too old or too many."""
        with self._database.transaction() as connection:
            connection.execute(
                "DELETE FROM audit WHERE time < ?", (self._wall() - 86400 * self._days,)
            )
            # failed log-ins have a limit of their own
            for condition, most in (("action = ?", MOST_FAILED), ("action != ?", MOST_ROWS)):
                connection.execute(
                    f"DELETE FROM audit WHERE {condition} AND seq <= (SELECT seq FROM audit "  # noqa: S608  # constants
                    f"WHERE {condition} ORDER BY seq DESC LIMIT 1 OFFSET ?)",
                    (FAILED, FAILED, most),
                )

    def entries(self, *, before: int | None = None, limit: int = 100) -> list[AuditEntry]:
        """Lines, the newest first; `before` is the `seq` of the last line already seen."""
        rows = self._database.rows(
            "SELECT seq, time, user, address, action, subject FROM audit WHERE "
            "(?1 IS NULL OR seq < ?1) ORDER BY seq DESC LIMIT ?2",
            *(before, limit),
        )
        return [AuditEntry(*row) for row in rows]


class Passwords:
    """Hashes and verifies passwords; each call takes a tenth of a second and 64 MiB."""

    def __init__(self) -> None:
        if find_spec("argon2") is None:
            raise MissingExtraError("a password", "web")
        from argon2 import PasswordHasher

        self._hasher = PasswordHasher()

    @cached_property
    def _dummy(self) -> str:
        """The hash that is verified for names without a password."""
        return self._hasher.hash("nobody has this password")

    def hash(self, password: str) -> str:
        """The hash to store."""
        return self._hasher.hash(password)

    def fits(self, hash: str | None, password: str) -> bool:
        """True if a password belongs to a hash; without a hash it takes as long, and does not."""
        from argon2.exceptions import InvalidHashError, VerificationError

        _ = self._dummy  # made by the first log-in of all, not by the first unknown name
        try:
            self._hasher.verify(hash or self._dummy, password)
        except (VerificationError, InvalidHashError):
            return False
        return hash is not None


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who is logged in."""

    name: str
    role: Role

    def may(self, needed: Role) -> bool:
        """True if the role includes another."""
        return ROLES.index(self.role) >= ROLES.index(needed)


TOKEN_USER = User("token", "administer")
"""Whoever has the token: a program, or an administrator at the first log-in."""


@dataclass(frozen=True, slots=True)
class Account:
    """A stored account."""

    name: str
    role: Role
    stamp: str
    """Changes with the password; a log-in with another stamp has ended."""
    has_password: bool
    created: float
    last_login: float | None
    link_expires: float | None
    """Until when its newest log-in link can be used."""

    @property
    def user(self) -> User:
        """The user that this account logs in."""
        return User(self.name, self.role)


def is_name(name: str) -> bool:
    """True if a text can be the name of an account."""
    return re.fullmatch(NAME, name) is not None and name.lower() not in RESERVED


def check_name(name: str) -> str:
    """The name, if an account may have it."""
    if not is_name(name):
        raise ConfigError(
            f"name: expected a letter or digit, then up to 63 letters, digits or . _ @ + -, "
            f"got {name[:80]!r}",
            hint="choose a short name or the mail address; token is taken",
        )
    return name


def role_of(text: str) -> Role:
    """The role of this name."""
    if text not in ROLES:
        raise ConfigError(
            f"role: expected {', '.join(ROLES)}, got {text[:80]!r}",
            hint="look: see everything; judge: mark events too; administer: delete and change",
        )
    return text


@dataclass(frozen=True, slots=True)
class Link:
    """A one-time link that can still be used."""

    account: Account | None
    """The account whose password it sets; None for the first log-in as administrator."""
    expires: float


def link_path(key: str) -> str:
    """The path of a log-in link; `once`, since logs hide what is called a key."""
    return f"/first?once={key}"


def check_password(password: str, name: str) -> None:
    """Raise if a password is too easy to guess, or too long."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise ConfigError(
            f"password: expected {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters, "
            f"got {len(password)}",
            hint="several words are easy to remember",
        )
    if name.lower() in password.lower() or len(set(password)) < SHORTEST_PASSWORD // 2:
        raise ConfigError(
            "password: expected one that is hard to guess, got the name or repeated characters",
            hint="several words are easy to remember",
        )


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of the audit log."""

    seq: int
    time: float
    user: str
    address: str
    action: str
    subject: str


def _account(row: sqlite3.Row) -> Account:
    name, role, stamp, has_password, created, last_login, link_expires = row
    return Account(name, role, stamp, bool(has_password), created, last_login, link_expires)


def _found(connection: sqlite3.Connection, name: str, now: float) -> Account | None:
    row = connection.execute(f"{_ACCOUNTS} WHERE name = ?", (now, name)).fetchone()
    return None if row is None else _account(row)


def _link(connection: sqlite3.Connection, key: str, now: float) -> Link | None:
    row = connection.execute(
        "SELECT user, expires FROM links WHERE hash = ? AND expires > ?", (_hash(key), now)
    ).fetchone()
    if row is None:
        return None
    return Link(None if row[0] is None else _found(connection, row[0], now), row[1])


def _set_fact(connection: sqlite3.Connection, name: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (name, value))


def _hash(key: str) -> str:
    """Keys are random and long: a plain hash is enough."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()


def _stamp() -> str:
    return secrets.token_hex(8)


def _unknown(name: str) -> DataError:
    return DataError(
        f"user {name[:80]}: expected the name of an account, got an unknown name",
        hint="run stepvad users list to see the names",
    )
