"""The web page of a running site and its API."""

from importlib.util import find_spec

from stepvad.errors import MissingExtraError

for needed, extra in (
    ("fastapi", "web"),
    ("uvicorn", "web"),
    ("websockets", "web"),
    ("argon2", "web"),
    ("prometheus_client", "live"),
):
    if find_spec(needed) is None:
        raise MissingExtraError("the page", extra)

# Imported after the check above, which reports a missing extra.
from stepvad.web.app import create_app  # noqa: E402
from stepvad.web.routes import PageContext  # noqa: E402
from stepvad.web.server import STOP_S, Server, bind  # noqa: E402

__all__ = ["STOP_S", "PageContext", "Server", "bind", "create_app"]
