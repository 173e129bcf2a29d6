"""Cameras in, events out: what runs on one machine for months."""

from importlib.util import find_spec

from stepvad.errors import MissingExtraError

if find_spec("pydantic") is None:
    raise MissingExtraError("watch", "live")
