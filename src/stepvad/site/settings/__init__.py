"""Settings in TOML: cameras, rules, sinks, the web page and access to it."""

from __future__ import annotations

from importlib.util import find_spec

from stepvad.errors import MissingExtraError

if find_spec("pydantic") is None:
    raise MissingExtraError("watch", "live")
