"""Lines on stderr: for people, or one JSON object each for programs."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Literal

from stepvad.video.url import redact

Form = Literal["text", "json"]


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
    """Log to stderr in this form, with the credentials of addresses hidden."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
