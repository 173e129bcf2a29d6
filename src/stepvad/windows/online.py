"""Checks settings for online windows, which are cut before a track ends."""

from __future__ import annotations

from stepvad.config import Config
from stepvad.errors import ConfigError


def check_online(config: Config) -> None:
    """Reject settings that need the end of a track."""
    if config.drop_last_window:
        raise ConfigError(
            "drop_last_window: expected False for a stream, got True",
            hint="a stream cannot know which window of a track is the last",
        )
