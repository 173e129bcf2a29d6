"""Passwords, hashed with Argon2id."""

from __future__ import annotations

from functools import cached_property
from importlib.util import find_spec

from stepvad.errors import ConfigError, MissingExtraError

SHORTEST_PASSWORD = 10
LONGEST_PASSWORD = 256


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
        """Whether a password belongs to a hash; without a hash it takes as long, and does not."""
        from argon2.exceptions import InvalidHashError, VerificationError

        _ = self._dummy  # made by the first log-in of all, not by the first unknown name
        try:
            self._hasher.verify(hash or self._dummy, password)
        except (VerificationError, InvalidHashError):
            return False
        return hash is not None
