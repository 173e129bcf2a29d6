"""The token that opens the page of a site."""

from __future__ import annotations

import secrets as random_words
from contextlib import suppress
from pathlib import Path

from stepvad.errors import ConfigError
from stepvad.files.atomic import replacing
from stepvad.files.secrets import secret
from stepvad.settings.sections import Settings

TOKEN = "token"
"""The file beside the data that keeps a token nobody chose."""


def token_of(settings: Settings) -> str:
    """The token of the settings, or one that is made at the first start and kept."""
    if settings.web.token is not None:
        return secret(settings.web.token)
    path = settings.data / TOKEN
    if _is_empty(path):
        _make(path)
    return secret(f"file:{path}")


def _is_empty(path: Path) -> bool:
    """Whether there is no token: also an empty file, left by a start on a full disk."""
    with suppress(FileNotFoundError):
        return path.stat().st_size == 0
    return True


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replacing(path, ConfigError) as temporary:
        temporary.write_text(random_words.token_urlsafe(24) + "\n", encoding="utf-8")
