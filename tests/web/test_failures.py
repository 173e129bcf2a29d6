"""Errors of the event store: 503 for the client, one line a minute for the operator."""

from __future__ import annotations

import logging
import sqlite3

import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from stepvad.errors import DataError
from stepvad.explain.event import EventExplanation
from tests.web.sites import BEARER, HERE, Site, happen

PAGE = 4096


def damage(mill: Site) -> None:
    """Overwrite every page of the database but the first."""
    with sqlite3.connect(mill.store.path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with mill.store.path.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(PAGE)
        file.write(b"\xa5" * (size - PAGE))


def errors_in(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [one for one in caplog.records if one.levelno >= logging.ERROR]


@pytest.mark.parametrize("path", ["/api/events", "/readyz", "/api/stored"])
def test_a_damaged_database_is_seen_in_the_log_once(
    mill: Site, client: TestClient, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    mill.status.state("yard", "online", "", 1.0)
    for number in range(50):
        happen(mill, number)
    damage(mill)
    for _ in range(5):
        answer = client.get(path)
        assert answer.status_code == 503
        assert "malformed" not in answer.text
    (line,) = errors_in(caplog)
    assert f"GET {path} failed" in line.getMessage()
    assert "malformed" in line.getMessage()


def test_a_damaged_database_is_no_missing_event(
    mill: Site, client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    one = happen(mill, 1)

    def damaged(id: str) -> EventExplanation:
        try:
            raise sqlite3.DatabaseError("database disk image is malformed")
        except sqlite3.DatabaseError as error:
            raise DataError("events.db: expected a store that can be read") from error

    mill.explain = damaged  # type: ignore[method-assign]
    client = TestClient(mill.app(), base_url=HERE, headers=BEARER)
    assert client.get(f"/api/events/{one.id}/explanation").status_code == 503
    assert "GET /api/events/{id}/explanation" in errors_in(caplog)[0].getMessage()


def test_a_wall_that_cannot_read_events_is_seen_in_the_log(
    mill: Site, client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    happen(mill, 1)
    damage(mill)
    with (
        client.websocket_connect(HERE.replace("http", "ws") + "/ws/live") as socket,
        pytest.raises(WebSocketDisconnect),
    ):
        socket.receive_json()
    assert "WEBSOCKET /ws/live failed" in errors_in(caplog)[0].getMessage()
