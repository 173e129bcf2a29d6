"""What a machine is told in TOML: cameras, rules, sinks, page, and who may look at it."""

from importlib.util import find_spec

from stepvad.errors import MissingExtraError

if find_spec("pydantic") is None:
    raise MissingExtraError("watch", "live")
