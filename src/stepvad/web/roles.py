"""Which role each route needs, and which requests enter the audit log: one line per route."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from starlette.routing import BaseRoute, Match, Route, WebSocketRoute
from starlette.types import Scope

from stepvad.accounts.users import Role

RouteKey = tuple[str, str]


class Rule(NamedTuple):
    """What a route asks of those who call it."""

    needs: Role | Literal["nobody"]
    """The lowest role; `nobody` need be logged in."""
    audit: str = ""
    """What the audit log says of a successful request, if anything."""
    is_look: bool = False
    """Whether the same request counts as one while it is repeated, as the page does."""


RULES: dict[RouteKey, Rule] = {
    # logging in and out
    ("GET", "/login"): Rule("nobody"),
    ("POST", "/login"): Rule("nobody"),
    ("GET", "/first"): Rule("nobody"),
    ("POST", "/first"): Rule("nobody"),
    ("POST", "/logout"): Rule("look", "logged out"),
    ("GET", "/password"): Rule("look"),
    ("POST", "/password"): Rule("look"),
    # the page
    ("GET", "/"): Rule("look"),
    ("GET", "/static/{name}"): Rule("look"),
    ("GET", "/users"): Rule("administer"),
    ("WEBSOCKET", "/ws/live"): Rule("look", "watched live", is_look=True),
    # operations: programs send the token, whose role is administer
    ("GET", "/healthz"): Rule("nobody"),
    ("GET", "/readyz"): Rule("look"),
    ("GET", "/metrics"): Rule("look"),
    ("GET", "/openapi.json"): Rule("look"),
    # the site
    ("GET", "/api/me"): Rule("look"),
    ("GET", "/api/site"): Rule("look"),
    ("GET", "/api/cameras"): Rule("look"),
    ("GET", "/api/cameras/{name}"): Rule("look"),
    ("GET", "/api/cameras/{name}/timeline"): Rule("look"),
    ("GET", "/api/cameras/{name}/moment"): Rule("look", "looked at a moment of", is_look=True),
    ("GET", "/api/cameras/{name}/place"): Rule("look"),
    ("DELETE", "/api/cameras/{name}/place"): Rule("administer", "deleted the drawing of"),
    ("GET", "/api/timelines"): Rule("look"),
    ("GET", "/api/stored"): Rule("look"),
    ("GET", "/api/sinks"): Rule("look"),
    ("GET", "/api/undelivered"): Rule("look"),
    ("POST", "/api/undelivered/resend"): Rule("administer", "sent messages again"),
    # events
    ("GET", "/api/events"): Rule("look", "looked at the list of events", is_look=True),
    ("GET", "/api/events/{id}"): Rule("look", "looked at event", is_look=True),
    ("GET", "/api/events/{id}/explanation"): Rule("look", "looked at explanation", is_look=True),
    ("GET", "/api/events/{id}/scene"): Rule("look", "looked at replay", is_look=True),
    ("PUT", "/api/events/{id}/mark"): Rule("judge", "marked event"),
    ("PUT", "/api/events/{id}/review"): Rule("judge", "reviewed event"),
    ("DELETE", "/api/events/{id}"): Rule("administer", "deleted event"),
    ("DELETE", "/api/events"): Rule("administer", "deleted events"),
    # settings
    ("GET", "/settings"): Rule("administer"),
    ("GET", "/api/settings"): Rule("administer", "read the settings", is_look=True),
    ("PUT", "/api/settings"): Rule("administer", "changed the settings"),
    ("PATCH", "/api/settings"): Rule("administer", "changed the settings"),
    ("POST", "/api/settings/check"): Rule("administer"),
    ("POST", "/api/settings/try-camera"): Rule("administer", "tried a camera"),
    ("POST", "/api/settings/test-sink"): Rule("administer", "tested a sink"),
    # learning
    ("GET", "/api/learning"): Rule("look"),
    ("GET", "/api/precision"): Rule("look"),
    ("POST", "/api/learning/fit"): Rule("administer", "asked for a new model"),
    ("POST", "/api/learning/use"): Rule("administer", "went back to an older model"),
    # notifications
    ("GET", "/notifications"): Rule("look"),
    ("GET", "/sw.js"): Rule("look"),
    ("GET", "/api/notifications"): Rule("look"),
    ("PUT", "/api/notifications/subscriptions"): Rule("look", "asked for notifications"),
    ("DELETE", "/api/notifications/subscriptions"): Rule("look", "ended notifications"),
    ("POST", "/api/notifications/test"): Rule("administer", "sent a test message"),
    # accounts
    ("GET", "/api/users"): Rule("administer"),
    ("POST", "/api/users"): Rule("administer", "added user"),
    ("PUT", "/api/users/{name}/role"): Rule("administer", "changed role of"),
    ("POST", "/api/users/{name}/link"): Rule("administer", "made log-in link for"),
    ("DELETE", "/api/users/{name}"): Rule("administer", "removed user"),
    ("GET", "/api/audit"): Rule("administer", "read the audit log", is_look=True),
}
UNKNOWN = Rule("administer")
"""For a path or method that no route has."""


class Rules:
    """Finds the rule of a request; raises when made if a route has none."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self._routes = [*routes]
        missing = {key for route in routes for key in keys_of(route)} - {*RULES}
        if missing:
            raise LookupError(f"web/roles.py has no rule for {sorted(missing)}")

    def of(self, scope: Scope) -> tuple[Rule, Scope]:
        """The rule of a request, with the path parameters of its route."""
        for route in self._routes:
            match, child = route.matches(scope)
            if match is Match.FULL:
                return RULES[key_of(scope["type"], scope.get("method", ""), route)], child
        return UNKNOWN, {}


def keys_of(route: BaseRoute) -> Iterator[RouteKey]:
    """Method and path of a route; HEAD counts as GET."""
    if isinstance(route, WebSocketRoute):
        yield "WEBSOCKET", route.path
    elif isinstance(route, Route):
        for method in route.methods or ():
            yield key_of("http", method, route)
    else:
        raise TypeError(f"expected a route with a path, got {type(route).__name__}")


def key_of(kind: str, method: str, route: BaseRoute) -> RouteKey:
    """The key of a route in the table, for one of its methods."""
    path = str(getattr(route, "path", ""))
    if kind == "websocket":
        return "WEBSOCKET", path
    return "GET" if method == "HEAD" else method, path
