"""The token of a page, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac

from stepvad.errors import ConfigError

SHORTEST_TOKEN = 16


class Token:
    """The access token of the page."""

    def __init__(self, token: str) -> None:
        if len(token) < SHORTEST_TOKEN:
            raise ConfigError(
                f"web.token: expected at least {SHORTEST_TOKEN} characters, got {len(token)}",
                hint="remove the setting to have one generated",
            )
        self._token = token.encode()
        # browsers send a host's cookies to all its ports, so each site needs its own cookie name
        name = hmac.new(self._token, b"stepvad cookie name", hashlib.sha256).hexdigest()
        self.cookie_name = f"stepvad-{name[:8]}"

    def fits(self, given: str) -> bool:
        """Whether this is the token, compared in constant time."""
        return hmac.compare_digest(given.encode(errors="replace"), self._token)
