"""Routes for messages to people: who gets them, the browsers that want them, and tests."""

from __future__ import annotations

import threading
from importlib.resources import files

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from stepvad.accounts.users import TOKEN_USER
from stepvad.codec import NewerVersionError
from stepvad.errors import ConfigError, DataError
from stepvad.settings.notify import concern_of, limits_of
from stepvad.settings.sections import SiteSettings
from stepvad.site.notifications.people import TestResult, people, send_test
from stepvad.site.notifications.push_subscriptions import (
    LONGEST_ENDPOINT,
    PushSubscriptions,
    check_endpoint,
)
from stepvad.web.answers import Problem, Strict

PAGE, WORKER = "notifications.html", "sw.js"


class People(BaseModel):
    """People who get messages."""

    name: str
    to: list[str] = Field(description="Where the addresses are; no secrets.")
    events: str = Field(description="Of which cameras and zones, in words.")
    limits: list[str] = Field(description="When they get messages, in words.")
    browsers: bool = Field(description="Whether browsers get them, too.")


class NotificationsAnswer(BaseModel):
    """Who gets messages."""

    people: list[People]
    browsers: int = Field(description="Browsers that are notified.")
    public_key: str | None = Field(
        description="The key that a browser subscribes with; None if no browser gets messages."
    )


class KeysRequest(BaseModel):
    """The keys of a browser, as its PushSubscription has them."""

    p256dh: str = Field(max_length=100)
    auth: str = Field(max_length=40)


class SubscriptionRequest(BaseModel):
    """A PushSubscription as JSON."""

    endpoint: str = Field(max_length=LONGEST_ENDPOINT)
    keys: KeysRequest


class EndRequest(Strict):
    """A subscription to end."""

    endpoint: str = Field(max_length=LONGEST_ENDPOINT)


class TestRequest(Strict):
    """Whom to send a test message."""

    __test__ = False  # no test class of pytest

    name: str = Field(max_length=64)


def add_notifications(app: FastAPI, settings: SiteSettings) -> None:
    """Add the routes, the page and its service worker."""
    subscriptions = PushSubscriptions(settings.data, settings.web.accounts)
    _add_browsers(app, settings, subscriptions)
    _add_test(app, settings)
    _add_files(app)


def account_of(request: Request) -> str:
    """The account behind a request; empty for the token, and for a user whom a proxy names."""
    identity = getattr(request.state, "identity", None)
    if identity is None or identity.known_by != "session" or identity.user == TOKEN_USER:
        return ""
    return str(identity.user.name)


def _add_browsers(app: FastAPI, settings: SiteSettings, subscriptions: PushSubscriptions) -> None:
    notified = any(one.browsers for one in settings.sinks.notify)

    @app.get("/api/notifications", tags=["notifications"])
    def notifications() -> NotificationsAnswer:
        """Who gets messages, and the key for a browser to subscribe with."""
        return NotificationsAnswer(
            people=[
                People(
                    name=one.name,
                    to=one.to,
                    events=concern_of(one),
                    limits=limits_of(one),
                    browsers=one.browsers,
                )
                for one in settings.sinks.notify
            ],
            browsers=len(subscriptions.all()) if notified else 0,
            public_key=subscriptions.key().x962_str if notified else None,
        )

    @app.put(
        "/api/notifications/subscriptions",
        tags=["notifications"],
        status_code=204,
        responses={409: {"model": Problem, "description": "No browser gets messages."}},
    )
    def subscribe(chosen: SubscriptionRequest, request: Request) -> Response:
        """Notify a browser from now on."""
        if not notified:
            raise HTTPException(
                409, 'expected [[sinks.notify]] with to = ["browsers"], got none in the settings'
            )
        try:
            check_endpoint(chosen.endpoint)
            keys, account = chosen.keys, account_of(request)
            subscriptions.add(chosen.endpoint, keys.p256dh, keys.auth, account)
        except NewerVersionError:  # of the site's own file: not the fault of the request
            raise
        except DataError as error:
            raise HTTPException(422, str(error)) from None
        return Response(status_code=204)

    @app.delete("/api/notifications/subscriptions", tags=["notifications"], status_code=204)
    def unsubscribe(chosen: EndRequest) -> Response:
        """Notify a browser no more."""
        subscriptions.remove([chosen.endpoint])
        return Response(status_code=204)


def _add_test(app: FastAPI, settings: SiteSettings) -> None:
    busy = threading.Lock()

    @app.post(
        "/api/notifications/test",
        tags=["notifications"],
        responses={
            404: {"model": Problem, "description": "There are no such people."},
            409: {"model": Problem, "description": "Another test is under way."},
        },
    )
    def test(chosen: TestRequest) -> list[TestResult]:
        """Send a test message to people, and say what came back."""
        try:
            whom = people(settings, chosen.name)
        except ConfigError as error:
            raise HTTPException(404, str(error)) from None
        if not busy.acquire(blocking=False):
            raise HTTPException(409, "expected no other test, got one under way; try again")
        try:
            return [*send_test(settings, whom)]
        finally:
            busy.release()


def _add_files(app: FastAPI) -> None:
    static = files("stepvad.web").joinpath("static")
    parts = {name: static.joinpath(name).read_text(encoding="utf-8") for name in (PAGE, WORKER)}

    @app.get("/notifications", include_in_schema=False)
    def page() -> Response:
        return Response(parts[PAGE], media_type="text/html; charset=utf-8")

    @app.get("/sw.js", include_in_schema=False)
    def worker() -> Response:
        """The service worker, at the root: it may open any page of the site."""
        return Response(parts[WORKER], media_type="text/javascript; charset=utf-8")
