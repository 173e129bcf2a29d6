"""Login sessions of browsers."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from stepvad.accounts.users import TOKEN_USER
from stepvad.codec import NewerVersionError
from stepvad.errors import StepvadError
from stepvad.files import statefile

logger = logging.getLogger(__name__)

SESSION_S = 30 * 86400.0
"""How long a browser stays logged in."""
MOST_SESSIONS = 256
"""Maximum number of sessions; a new one evicts the oldest."""
MAX_FILE = 128 * 1024


class Owner(NamedTuple):
    """Whose session it is, and the stamp that the account had at log-in."""

    name: str
    stamp: str


TOKEN_OWNER = Owner(TOKEN_USER.name, "")


@dataclass(frozen=True, slots=True)
class Session:
    """One session, as it is stored."""

    user: str
    stamp: str
    ends: float


@dataclass(frozen=True, slots=True)
class SessionsFile:
    """Sessions by hash, for the next run."""

    sessions: dict[str, Session]
    version: Literal[1] = 1


class Sessions:
    """Sessions by the hash of a random id that only the browser knows; thread-safe.

    Hashes are keyed with the token, so changing the token invalidates all sessions. With a file
    they survive a restart; one that cannot be read at the start is left as it is.
    """

    def __init__(
        self,
        token: str,
        file: Path | None = None,
        *,
        longest_s: float = SESSION_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._key = hmac.digest(token.encode(), b"stepvad session", "sha256")
        self._file, self._clock = file, clock
        self.longest_s = longest_s
        self._lock = threading.Lock()
        self._sessions = self._read()

    def begin(self, owner: Owner = TOKEN_OWNER) -> str:
        """Start a session; return the id for the browser."""
        id, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            kept = {hash: one for hash, one in self._sessions.items() if now < one.ends}
            kept[self._hash(id)] = Session(*owner, round(now + self.longest_s))
            self._save(dict([*kept.items()][-MOST_SESSIONS:]))
        return id

    def owner(self, id: str) -> Owner | None:
        """Whose session it is; None if it is none or has ended."""
        session = self._sessions.get(self._hash(id))  # without waiting for a slow disk
        is_active = session is not None and self._clock() < session.ends
        return Owner(session.user, session.stamp) if session and is_active else None

    def end(self, id: str) -> None:
        """End a session; its id is no longer valid."""
        ended = self._hash(id)
        with self._lock:
            if ended in self._sessions:
                self._save({hash: one for hash, one in self._sessions.items() if hash != ended})

    def _hash(self, id: str) -> str:
        return hmac.new(self._key, id.encode(errors="replace"), hashlib.sha256).hexdigest()

    def _read(self) -> dict[str, Session]:
        """The sessions of the last run."""
        if self._file is None:
            return {}
        lost = "all browsers must log in again"
        try:
            found = statefile.read(self._file, SessionsFile, "sessions", most=MAX_FILE, lost=lost)
        except (NewerVersionError, OSError) as error:
            logger.warning("sessions will not survive a restart: %s", error)
            self._file = None
            return {}
        return found.sessions if found else {}

    def _save(self, sessions: dict[str, Session]) -> None:
        """Save the sessions for the next run; if the disk is full, they stay valid in this run."""
        self._sessions = sessions
        if self._file is None:
            return
        try:
            statefile.write(self._file, SessionsFile(sessions))
        except StepvadError as error:
            logger.warning("sessions will not survive a restart: %s", error)
