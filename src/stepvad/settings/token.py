"""The access token of a site's web page."""

from __future__ import annotations

import secrets as random_words
from contextlib import suppress
from pathlib import Path

from stepvad.errors import ConfigError
from stepvad.files.atomic import replacing
from stepvad.files.secrets import secret
from stepvad.settings.sections import SiteSettings

TOKEN = "token"
"""File in the data directory with a generated token."""


def token_of(settings: SiteSettings) -> str:
    """The token from the settings, or one generated and saved at the first start."""
    if settings.web.token is not None:
        return secret(settings.web.token)
    path = settings.data / TOKEN
    if _is_empty(path):
        _make(path)
    return secret(f"file:{path}")


def _is_empty(path: Path) -> bool:
    """Whether the token is missing or empty, as after a start on a full disk."""
    with suppress(FileNotFoundError):
        return path.stat().st_size == 0
    return True


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replacing(path, ConfigError) as temporary:
        temporary.write_text(random_words.token_urlsafe(24) + "\n", encoding="utf-8")
