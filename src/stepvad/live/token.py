"""The token of the page."""

from __future__ import annotations

import os
import secrets as random_words

from stepvad.live.sections import Settings
from stepvad.secrets import secret

TOKEN = "token"


def token_of(settings: Settings) -> str:
    """The token of the page: that of the settings, or one that is made once and kept."""
    if settings.web.token is not None:
        return secret(settings.web.token)
    path = settings.data / TOKEN
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(random_words.token_urlsafe(24) + "\n")
    return secret(f"file:{path}")
