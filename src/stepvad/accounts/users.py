"""Users, and the roles that say what they may do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from stepvad.errors import ConfigError

Role = Literal["look", "judge", "administer"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Each role includes those before it."""
NAME = r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$"
"""Names of users; those of a proxy are often mail addresses."""
RESERVED = frozenset({"token"})


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who is logged in."""

    name: str
    role: Role

    def may(self, needed: Role) -> bool:
        """Whether the role includes another."""
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
    """Whether a text can be the name of an account."""
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
