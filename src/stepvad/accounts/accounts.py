"""Accounts: users, passwords and one-time log-in links."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stepvad.accounts.audit import AUDIT_DAYS, AuditLog
from stepvad.accounts.database import AccountsDatabase
from stepvad.accounts.users import Account, Role, check_name, role_of
from stepvad.errors import ConfigError, DataError

LINK_S = 24 * 3600.0
"""How long a log-in link can be used: somebody reads the message the next day."""
FIRST_LINK_S = 3600.0
"""How long the link in the log of a new site can be used; whoever reads the log could."""
MOST_ACCOUNTS = 1000
_ACCOUNTS = """
SELECT name, role, stamp, password IS NOT NULL, created, last_login,
    (SELECT max(expires) FROM links WHERE links.user = users.name AND expires > ?) FROM users
"""


@dataclass(frozen=True, slots=True)
class Link:
    """A one-time link that can still be used."""

    account: Account | None
    """Who may choose a password with it; None for the first log-in as administrator."""
    expires: float


class Accounts:
    """The accounts of a page; without a path they are in memory, and nobody can be added."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        audit_days: float = AUDIT_DAYS,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._database, self._wall = AccountsDatabase(path), wall
        self.path = path
        self.audit = AuditLog(self._database, days=audit_days, wall=wall)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def all(self) -> list[Account]:
        """All accounts by name."""
        with self._database.read() as connection:
            rows = connection.execute(f"{_ACCOUNTS} ORDER BY name", (self._wall(),)).fetchall()
        return [_account(row) for row in rows]

    def is_empty(self) -> bool:
        """Whether there is no account."""
        with self._database.read() as connection:
            return connection.execute("SELECT 1 FROM users LIMIT 1").fetchone() is None

    def find(self, name: str) -> Account | None:
        """The account of this name, in upper or lower case."""
        with self._database.read() as connection:
            return _found(connection, name, self._wall())

    def password_hash(self, name: str) -> str | None:
        """The hash of an account's password; None if there is no such account or no password."""
        with self._database.read() as connection:
            row = connection.execute("SELECT password FROM users WHERE name = ?", (name,))
            found = row.fetchone()
        return None if found is None else found[0]

    def add(self, name: str, role: Role, password_hash: str | None = None) -> Account:
        """Add an account; without a password its owner needs a link."""
        check_name(name)
        self._check_file()
        with self._database.write() as connection:
            (count,) = connection.execute("SELECT count(*) FROM users").fetchone()
            if _found(connection, name, 0) is not None or count >= MOST_ACCOUNTS:
                raise ConfigError(
                    f"user {name}: expected a new name, got one that is taken"
                    if count < MOST_ACCOUNTS
                    else f"users: expected at most {MOST_ACCOUNTS}, got one more",
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
        """What a key is good for; None if it was used, replaced or has expired."""
        with self._database.read() as connection:
            return _link(connection, key, self._wall())

    def use_link(self, key: str, password_hash: str) -> Account | None:
        """Choose a password with a key, once; None if the key is worthless."""
        with self._database.write() as connection:
            link = _link(connection, key, self._wall())
            if link is None or link.account is None:
                return None
            name = link.account.name
            connection.execute("DELETE FROM links WHERE user = ?", (name,))
            connection.execute(
                "UPDATE users SET password = ?, stamp = ? WHERE name = ?",
                (password_hash, _stamp(), name),
            )
            return _found(connection, name, self._wall())

    def use_first_link(self, key: str) -> bool:
        """Whether a key is good for the first log-in; it is not a second time."""
        with self._database.write() as connection:
            link = _link(connection, key, self._wall())
            if link is None or link.account is not None:
                return False
            connection.execute("DELETE FROM links WHERE user IS NULL")
            _set_fact(connection, "first", "used")
            return True

    def fact(self, name: str) -> str | None:
        """A stored fact, such as the `url` of the page."""
        with self._database.read() as connection:
            found = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if found is None else str(found[0])

    def set_fact(self, name: str, value: str) -> None:
        """Store a fact."""
        with self._database.write() as connection:
            _set_fact(connection, name, value)

    def _new_key(self, name: str | None, lasts_s: float) -> str:
        key = secrets.token_urlsafe(32)
        with self._database.write() as connection:
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
        with self._database.write() as connection:
            if connection.execute(statement, values).rowcount == 0:
                raise _unknown(str(values[-1]))

    def _check_file(self) -> None:
        if self.path is None:
            raise ConfigError(
                "web.accounts: expected a file to keep accounts in, got none",
                hint="name one under [web] in the settings, and restart the page",
            )


def link_path(key: str) -> str:
    """The path of a log-in link; `once`, since logs hide what is called a key."""
    return f"/first?once={key}"


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
