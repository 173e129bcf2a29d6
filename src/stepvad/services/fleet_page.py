"""The process that serves the page of a fleet's events."""

from __future__ import annotations

from collections.abc import Callable

from stepvad.errors import ConfigError
from stepvad.files.secrets import secret
from stepvad.fleet.events.reader import EventReader
from stepvad.fleet.settings import FleetSettings
from stepvad.intake.status import LiveStatus
from stepvad.services.accounts import open_accounts, tell_first_link
from stepvad.services.process import Service
from stepvad.supervision.stages import Supervisor, watch_over
from stepvad.web import STOP_S, Running, bind, create_app


def serve(settings: FleetSettings, on_open: Callable[[str], None]) -> None:
    """Serve the page until SIGTERM or Ctrl-C; call `on_open` with its URL."""
    token = settings.web.token
    if token is None:
        raise ConfigError(
            "web.token: expected env:NAME or file:PATH, got none",
            hint="create a token of at least 16 characters and name where it is stored",
        )
    Service().run(lambda service: _run(service, settings, token, on_open))


def _run(
    service: Service, settings: FleetSettings, token: str, on_open: Callable[[str], None]
) -> list[str]:
    shelf, supervisor, web = EventReader(secret(settings.events.dsn)), Supervisor(), settings.web
    try:
        shelf.check()
        site = Running(settings, shelf, LiveStatus(), shelf.explanation, shelf.mark)
        accounts = open_accounts(web, None)
        app = create_app(site, secret(token), health=supervisor.health, accounts=accounts)
        page = bind(app, web.host, web.port, certificate=web.certificate, key=web.key)
        tell_first_link(accounts, web, page.url)
        supervisor.start(page)
        on_open(page.url)
        watch_over(supervisor, service.stop, service.beat)
        return supervisor.stop([page], STOP_S)
    finally:
        shelf.close()
