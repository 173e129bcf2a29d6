"""Login sessions of browsers."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path

from stepvad.errors import StepvadError
from stepvad.files.atomic import replacing

logger = logging.getLogger(__name__)

SESSION_S = 30 * 86400.0
"""How long a browser stays logged in."""
MOST_SESSIONS = 256
"""Maximum number of sessions; a new one evicts the oldest."""
MAX_FILE = 64 * 1024
VERSION = 1


class Sessions:
    """Sessions by the hash of a random id that only the browser knows; thread-safe.

    Hashes are keyed with the token, so changing the token invalidates all sessions. With a file
    they survive a restart. Expiry uses the monotonic clock: setting the system time neither expires
    nor extends a session, except for the time between two runs.
    """

    def __init__(
        self,
        token: str,
        file: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._key = hmac.digest(token.encode(), b"stepvad session", "sha256")
        self._file, self._clock, self._wall = file, clock, wall
        self._ends: dict[str, float] = {}
        self._lock, self._writing = threading.Lock(), threading.Lock()
        if file is not None:
            self._load(file)

    def begin(self) -> str:
        """Start a session; return the id for the browser."""
        id = secrets.token_urlsafe(32)
        with self._lock:
            self._forget_ended()
            self._ends[self._hash(id)] = self._clock() + SESSION_S
            while len(self._ends) > MOST_SESSIONS:
                del self._ends[next(iter(self._ends))]
        self._save()
        return id

    def holds(self, id: str) -> bool:
        """Whether an id belongs to an active session."""
        with self._lock:
            return self._clock() < self._ends.get(self._hash(id), 0.0)

    def end(self, id: str) -> None:
        """End a session; its id is no longer valid."""
        with self._lock:
            known = self._ends.pop(self._hash(id), None)
        if known is not None:
            self._save()

    def __len__(self) -> int:
        with self._lock:
            self._forget_ended()
            return len(self._ends)

    def _hash(self, id: str) -> str:
        return hmac.new(self._key, id.encode(errors="replace"), hashlib.sha256).hexdigest()

    def _forget_ended(self) -> None:
        now = self._clock()
        self._ends = {hash: end for hash, end in self._ends.items() if now < end}

    def _load(self, file: Path) -> None:
        try:
            if file.stat().st_size > MAX_FILE:
                raise ValueError(f"more than {MAX_FILE} bytes")
            facts = json.loads(file.read_text(encoding="utf-8"))
            if facts["version"] != VERSION:
                raise ValueError(f"expected version {VERSION}, got {facts['version']!r}")
            ends = {str(hash): float(end) for hash, end in facts["ends"].items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            logger.warning(
                "%s: sessions cannot be read, all browsers must log in again: %s", file, error
            )
            return
        now, since = self._clock(), self._wall()
        for hash, end in sorted(ends.items(), key=lambda item: item[1])[-MOST_SESSIONS:]:
            self._ends[hash] = now + min(end - since, SESSION_S)
        self._forget_ended()

    def _save(self) -> None:
        """Save the sessions for the next run; if the disk is full, they stay valid in this run."""
        if self._file is None:
            return
        with self._writing:
            with self._lock:
                later = self._wall() - self._clock()
                ends = {hash: round(end + later) for hash, end in self._ends.items()}
            try:
                with replacing(self._file) as temporary:  # readable by its owner only
                    temporary.write_text(json.dumps({"version": VERSION, "ends": ends}))
            except StepvadError as error:
                logger.warning("sessions will not survive a restart: %s", error)
