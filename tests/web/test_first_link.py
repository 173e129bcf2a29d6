"""A new site logs one link for the first log-in."""

from __future__ import annotations

import logging
import re
import socket
from contextlib import closing
from pathlib import Path

import pytest

from stepvad.files import redact
from stepvad.site.settings.page import Web
from stepvad.web.app import open_accounts, tell_first_link

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
