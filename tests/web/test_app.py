"""The app: its first link, errors of its store, and every operation asked at random."""

from __future__ import annotations

import logging
import re
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from stepvad.codec import from_plain
from stepvad.errors import DataError
from stepvad.explain.event import EventExplanation
from stepvad.files import redact
from stepvad.site.accounts import Accounts
from stepvad.site.settings.page import Web
from stepvad.web.app import open_accounts, tell_first_link
from tests.web.sites import BEARER, EXPLANATION, HERE, Site, happen, record, site

URL = "http://127.0.0.1:8391/"
PUBLIC = "https://cameras.example.org"


def told(caplog: pytest.LogCaptureFixture, data: Path | None, web: Web) -> list[str]:
    """The keys that a start logs, as they come through the redaction of logs."""
    caplog.clear()
    with closing(open_accounts(web, data)) as accounts, caplog.at_level(logging.INFO):
        tell_first_link(accounts, web, URL)
    lines = [redact(one.getMessage()) for one in caplog.records]
    return [found[0] for line in lines for found in re.finditer(r"\S+/first\?once=\S+", line)]


def test_each_start_logs_a_new_link_until_one_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    web = Web()
    (first,), (second,) = told(caplog, tmp_path, web), told(caplog, tmp_path, web)
    assert first.startswith(URL)
    assert "*" not in second
    with closing(open_accounts(web, tmp_path)) as accounts:
        assert not accounts.use_first_link(first.partition("=")[2])
        assert accounts.use_first_link(second.partition("=")[2])
    assert told(caplog, tmp_path, web) == []


def test_a_site_with_accounts_logs_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(open_accounts(Web(), tmp_path)) as accounts:
        accounts.create("anna", "administer")
    assert told(caplog, tmp_path, Web()) == []


def test_the_link_has_the_address_that_browsers_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (link,) = told(caplog, tmp_path, Web(public_url=PUBLIC, trusted_proxies=["127.0.0.1"]))
    assert link.startswith(f"{PUBLIC}/first")
    with closing(open_accounts(Web(), tmp_path)) as accounts:
        assert accounts.fact("url") == PUBLIC
        tell_first_link(accounts, Web(host="0.0.0.0"), URL)
        assert accounts.fact("url") == f"http://{socket.gethostname()}:8391/"


def test_a_fleet_without_a_file_logs_none(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, None, Web()) == []


def test_the_settings_name_the_file(tmp_path: Path) -> None:
    web = Web(accounts=tmp_path / "people.db")
    with closing(open_accounts(web, tmp_path / "data")) as accounts:
        assert accounts.path == tmp_path / "people.db"
    with closing(open_accounts(web, None)) as accounts:
        assert accounts.path == tmp_path / "people.db"


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


def test_a_wall_that_cannot_read_events_goes_on_and_is_seen_in_the_log(
    mill: Site, client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    happen(mill, 1)
    damage(mill)
    with client.websocket_connect(HERE.replace("http", "ws") + "/ws/live") as socket:
        assert "troubles" in socket.receive_json()
    assert "the newest events cannot be read" in errors_in(caplog)[0].getMessage()


EXAMPLES = 10
"""For each operation."""
HEADERS = BEARER | {"Host": "127.0.0.1"}


def operations(mill: Site, accounts: Accounts) -> list[Any]:
    import schemathesis  # takes seconds

    app = mill.app(accounts=accounts)
    schema: Any = schemathesis.openapi.from_asgi("/openapi.json", app, headers=HEADERS)
    return [found.ok() for found in schema.get_all_operations()]


def ask_at_random(operation: Any, known: list[str]) -> set[int]:
    """What was answered to questions that fit the document, and to some that do not."""
    from schemathesis.generation import GenerationMode

    heard = set()
    fitting = operation.as_strategy()
    asked = st.one_of(
        fitting,
        operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
        if operation.path_parameters or operation.query or operation.body
        else fitting,
    )

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(case=asked, id=st.sampled_from([None, *known]))
    def ask(case: Any, id: str | None) -> None:
        if id is not None and "id" in (case.path_parameters or {}):
            case.path_parameters["id"] = id  # or else nothing is ever found
        if id is not None and "users" in case.path and "name" in (case.path_parameters or {}):
            case.path_parameters["name"] = "lena"
        answer = case.call(headers=HEADERS)
        heard.add(answer.status_code)
        assert answer.status_code < 500, (operation.label, answer.text)

    ask()
    return heard


@pytest.mark.slow
def test_nothing_that_is_asked_is_a_server_error(tmp_path: Path) -> None:
    with site(tmp_path) as mill, closing(Accounts(tmp_path / "accounts.db")) as accounts:
        known = [record(number).id for number in range(3)]
        mill.status.state("yard", "online", "", 1.0)
        found = operations(mill, accounts)
        assert len(found) >= 21
        heard = {}
        for operation in found:
            mill.store.delete(ids=known)
            for number in range(3):
                mill.explanations[happen(mill, number).id] = from_plain(
                    EventExplanation, EXPLANATION, "explanation"
                )
            if accounts.find("lena") is None:
                accounts.create("lena", "look")
            heard[operation.label] = ask_at_random(operation, known)
        assert 200 in heard["GET /api/events/{id}"]
        assert 404 in heard["GET /api/events/{id}"]
        assert {200, 404} <= heard["PUT /api/users/{name}/role"] | heard["DELETE /api/users/{name}"]
        assert {201, 422} <= heard["POST /api/users"]
        assert {200, 422} <= heard["PUT /api/events/{id}/mark"] | heard["GET /api/events"]
