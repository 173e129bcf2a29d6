"""Log-ins end on the server: by logging out, by age, by number, by another token."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path

import pytest

from stepvad.web.sessions import (
    MAX_FILE,
    MOST_SESSIONS,
    SESSION_S,
    TOKEN_OWNER,
    Owner,
    Sessions,
)
from tests.files.unreadable import unreadable
from tests.fleet.disks import small_disk

TOKEN = "a-token-of-this-test-0123456789"
NOW = 1_700_000_000.0


def test_a_log_in_holds_until_it_is_ended() -> None:
    sessions = Sessions(TOKEN)
    first, second = sessions.begin(), sessions.begin()
    assert first != second
    assert sessions.owner(first)
    sessions.end(first)
    sessions.end("nobody")
    assert sessions.owner(first) is None
    assert sessions.owner(second)
    assert sessions.owner("") is None


def test_a_log_in_ends_by_time() -> None:
    now = NOW
    sessions = Sessions(TOKEN, clock=lambda: now)
    id = sessions.begin()
    now += SESSION_S - 1
    assert sessions.owner(id)
    now += 1
    assert sessions.owner(id) is None


def test_a_log_in_belongs_to_somebody(tmp_path: Path) -> None:
    file, anna = tmp_path / "sessions", Owner("anna", "ab12")
    sessions = Sessions(TOKEN, file)
    ids = sessions.begin(anna), sessions.begin()
    for known in (sessions, Sessions(TOKEN, file)):
        assert [known.owner(id) for id in ids] == [anna, TOKEN_OWNER]


def test_the_oldest_log_in_ends_when_there_are_too_many() -> None:
    sessions = Sessions(TOKEN)
    ids = [sessions.begin() for _ in range(MOST_SESSIONS + 1)]
    assert sessions.owner(ids[0]) is None
    assert all(sessions.owner(id) for id in ids[1:])


def test_log_ins_survive_a_restart_and_the_file_opens_nothing(tmp_path: Path) -> None:
    file = tmp_path / "sessions"
    before = Sessions(TOKEN, file)
    id, ended = before.begin(), before.begin()
    before.end(ended)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert id not in file.read_text()
    assert TOKEN not in file.read_text()
    after = Sessions(TOKEN, file)
    assert after.owner(id)
    assert after.owner(ended) is None
    for hash in json.loads(file.read_text())["sessions"]:
        assert after.owner(hash) is None


def test_another_token_ends_all_log_ins(tmp_path: Path) -> None:
    id = Sessions(TOKEN, tmp_path / "sessions").begin()
    assert Sessions(TOKEN + "!", tmp_path / "sessions").owner(id) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version": 1, "sessions": []}',
        '{"version": 1, "sessions": {"a": "b"}}',
        '{"version": 1, "ends": {}}',
        "[" * 50_000,
        "x" * MAX_FILE + "x",
    ],
    ids=lambda text: str(text[:20]),
)
def test_a_damaged_file_logs_everybody_out_and_is_said_so(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "sessions"
    file.write_text(text)
    sessions = Sessions(TOKEN, file)
    assert "damaged, so all browsers must log in again" in caplog.text
    assert file.with_name("sessions.damaged").read_text() == text
    id = sessions.begin()
    assert Sessions(TOKEN, file).owner(id)


def test_a_file_that_cannot_be_read_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "sessions"
    id = Sessions(TOKEN, file).begin()
    with unreadable(file):
        after = Sessions(TOKEN, file)
        assert after.owner(id) is None
        assert after.owner(after.begin())
    assert Sessions(TOKEN, file).owner(id)


def test_log_ins_of_a_newer_version_are_left_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "sessions"
    file.write_text('{"version": 2}')
    sessions = Sessions(TOKEN, file)
    assert sessions.owner(sessions.begin())
    assert file.read_text() == '{"version": 2}'
    assert caplog.text.count("expected version 1, got 2") == 1


def test_a_full_disk_keeps_nobody_out(caplog: pytest.LogCaptureFixture) -> None:
    with small_disk(1) as disk, caplog.at_level(logging.WARNING):
        sessions = Sessions(TOKEN, disk.path / "sessions")
        disk.fill()
        assert sessions.owner(sessions.begin())
    assert "sessions will not survive a restart" in caplog.text
