"""The access token of a site's web page."""

from __future__ import annotations

import secrets as random_words

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
    if not path.exists() or path.stat().st_size == 0:  # empty after a start on a full disk
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(path, ConfigError) as temporary:
            temporary.write_text(random_words.token_urlsafe(24) + "\n", encoding="utf-8")
    return secret(f"file:{path}")
