"""Login sessions of browsers."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from stepvad.accounts.users import TOKEN_USER
from stepvad.codec import NewerVersionError
from stepvad.errors import StepvadError
from stepvad.files import statefile
from stepvad.supervision.logs import FailureLog

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
class _Session:
    """One session, in times of the monotonic clock."""

    owner: Owner
    ends: float


@dataclass(frozen=True, slots=True)
class SavedSession:
    """One session, in times of the wall clock."""

    user: str
    stamp: str
    ends: float


@dataclass(frozen=True, slots=True)
class SessionsFile:
    """Sessions by hash, for the next run."""

    sessions: dict[str, SavedSession]
    version: Literal[1] = 1


class Sessions:
    """Sessions by the hash of a random id that only the browser knows; thread-safe.

    Hashes are keyed with the token, so changing the token invalidates all sessions. With a file
    they survive a restart; while it cannot be read, it is not written. Expiry uses the monotonic
    clock: setting the system time neither expires nor extends a session, except for the time
    between two runs.
    """

    def __init__(
        self,
        token: str,
        file: Path | None = None,
        *,
        longest_s: float = SESSION_S,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._key = hmac.digest(token.encode(), b"stepvad session", "sha256")
        self._file, self._clock, self._wall = file, clock, wall
        self.longest_s = longest_s
        self._sessions: dict[str, _Session] = {}
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._failures = FailureLog(logger)
        self._is_loaded = False
        self._load()

    def begin(self, owner: Owner = TOKEN_OWNER) -> str:
        """Start a session; return the id for the browser."""
        id, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            self._forget_ended()
            self._sessions[self._hash(id)] = _Session(owner, now + self.longest_s)
            while len(self._sessions) > MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
        self._save()
        return id

    def owner(self, id: str) -> Owner | None:
        """Whose session it is; None if it is none or has ended."""
        self._load()
        with self._lock:
            session = self._sessions.get(self._hash(id))
        return session.owner if session and self._clock() < session.ends else None

    def holds(self, id: str) -> bool:
        """Whether an id belongs to an active session."""
        return self.owner(id) is not None

    def end(self, id: str) -> None:
        """End a session; its id is no longer valid."""
        self._load()
        with self._lock:
            known = self._sessions.pop(self._hash(id), None)
        if known is not None:
            self._save()

    def __len__(self) -> int:
        with self._lock:
            self._forget_ended()
            return len(self._sessions)

    def _hash(self, id: str) -> str:
        return hmac.new(self._key, id.encode(errors="replace"), hashlib.sha256).hexdigest()

    def _forget_ended(self) -> None:
        now, sessions = self._clock(), self._sessions
        self._sessions = {hash: one for hash, one in sessions.items() if now < one.ends}

    def _load(self) -> None:
        """Take over the sessions of the last run; tried again until the file can be read."""
        if self._is_loaded or self._file is None:  # without waiting for a slow disk
            return
        with self._writing:
            if self._is_loaded or self._file is None:
                return
            lost = "all browsers must log in again"
            try:
                found = statefile.read(
                    self._file, SessionsFile, "sessions", most=MAX_FILE, lost=lost
                )
            except NewerVersionError as error:
                logger.warning("sessions will not survive a restart: %s", error)
                self._file = None
                return
            except OSError as error:
                self._failures.log("sessions of the last run cannot be read yet", error)
                return
            with self._lock:
                self._sessions = self._active(found.sessions if found else {}) | self._sessions
            self._is_loaded = True

    def _active(self, found: Mapping[str, SavedSession]) -> dict[str, _Session]:
        """The sessions of a file that have not ended, in times of the monotonic clock."""
        now, since, kept = self._clock(), self._wall(), dict[str, _Session]()
        for hash, one in sorted(found.items(), key=lambda item: item[1].ends)[-MOST_SESSIONS:]:
            left_s = min(one.ends - since, self.longest_s)
            if left_s > 0:
                kept[hash] = _Session(Owner(one.user, one.stamp), now + left_s)
        return kept

    def _save(self) -> None:
        """Save the sessions for the next run; if the disk is full, they stay valid in this run."""
        self._load()
        with self._writing:
            if self._file is None or not self._is_loaded:
                return
            with self._lock:
                later = self._wall() - self._clock()
                saved = {
                    hash: SavedSession(*one.owner, round(one.ends + later))
                    for hash, one in self._sessions.items()
                }
            try:
                statefile.write(self._file, SessionsFile(saved))
            except StepvadError as error:
                logger.warning("sessions will not survive a restart: %s", error)
