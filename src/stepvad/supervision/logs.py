"""Log lines on stderr: text for people, or JSON objects for programs."""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Hashable
from typing import Literal

from stepvad.errors import StepvadError
from stepvad.files.redaction import redact

Form = Literal["text", "json"]

REPEAT_S = 60.0
"""A repeated line is logged at most once in this time."""
MOST_KINDS = 256
"""Kinds of lines that are tracked."""


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        return redact(f"{when} {record.levelname.lower()}: {_words(self, record)}")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": redact(_words(self, record)),
        }
        return json.dumps(facts, ensure_ascii=False)


def _words(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    words = record.getMessage()
    if record.exc_info:
        words += "\n" + formatter.formatException(record.exc_info)
    return words


def set_up(form: Form) -> None:
    """Log to stderr in this form, with the credentials of addresses hidden.

    Libraries log warnings only: their routine messages show secret addresses, for example those
    of webhooks.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("stepvad").setLevel(logging.INFO)


class Repeats:
    """Admits one line of a kind per minute and counts the others; thread-safe."""

    def __init__(
        self, every_s: float = REPEAT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._every_s, self._clock = every_s, clock
        self._seen: dict[Hashable, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def admit(self, kind: Hashable) -> int | None:
        """How many of this kind were suppressed since the last; None to suppress this one."""
        now = self._clock()
        with self._lock:
            at, held = self._seen.get(kind, (-math.inf, 0))
            if now - at < self._every_s:
                self._seen[kind] = at, held + 1
                return None
            self._seen.pop(kind, None)
            self._seen[kind] = now, 0  # reinserted at the end, to keep the oldest first
            if len(self._seen) > MOST_KINDS:
                del self._seen[next(iter(self._seen))]
            return held


class RepeatFilter(logging.Filter):
    """Admits one record of a kind per minute, with the number of those suppressed."""

    def __init__(self, repeats: Repeats | None = None) -> None:
        super().__init__()
        self._repeats = repeats or Repeats()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this record is logged."""
        error = record.exc_info[1] if record.exc_info else None
        held = self._repeats.admit((record.msg, type(error), str(error)))
        if held is None:
            return False
        record.msg = f"{str(record.msg).rstrip()}{repeated(held)}"
        return True


class FailureLog:
    """Logs failures of work that continues: one line per minute for each kind of error.

    Expected failures, such as a full disk, take one line; only unexpected errors are logged with
    their traceback.
    """

    def __init__(self, logger: logging.Logger, repeats: Repeats | None = None) -> None:
        self._logger, self._repeats = logger, repeats or Repeats()

    def log(self, what: str, error: Exception) -> None:
        """Log what failed and why."""
        held = self._repeats.admit((what, type(error)))
        if held is None:
            return
        is_expected = isinstance(error, StepvadError | OSError | sqlite3.Error)
        words = str(error) or type(error).__name__
        trace = None if is_expected else error
        self._logger.error("%s: %s%s", what, words, repeated(held), exc_info=trace)


def repeated(held: int) -> str:
    """The number of suppressed lines, as a suffix of the line that is logged."""
    return f" ({held} more like this since the last line)" if held else ""
