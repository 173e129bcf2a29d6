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
    assert sessions.holds(first)
    sessions.end(first)
    sessions.end("nobody")
    assert not sessions.holds(first)
    assert sessions.holds(second)
    assert not sessions.holds("")


def test_a_log_in_ends_by_the_monotonic_clock() -> None:
    now = 500.0
    sessions = Sessions(TOKEN, clock=lambda: now)
    id = sessions.begin()
    now += SESSION_S - 1
    assert sessions.holds(id)
    now += 1
    assert not sessions.holds(id)
    assert len(sessions) == 0


def test_a_log_in_belongs_to_somebody(tmp_path: Path) -> None:
    file, anna = tmp_path / "sessions", Owner("anna", "ab12")
    sessions = Sessions(TOKEN, file)
    ids = sessions.begin(anna), sessions.begin()
    for known in (sessions, Sessions(TOKEN, file)):
        assert [known.owner(id) for id in ids] == [anna, TOKEN_OWNER]


def test_the_oldest_log_in_ends_when_there_are_too_many() -> None:
    sessions = Sessions(TOKEN)
    ids = [sessions.begin() for _ in range(MOST_SESSIONS + 1)]
    assert not sessions.holds(ids[0])
    assert all(sessions.holds(id) for id in ids[1:])
    assert len(sessions) == MOST_SESSIONS


def test_log_ins_survive_a_restart_and_the_file_opens_nothing(tmp_path: Path) -> None:
    file = tmp_path / "sessions"
    before = Sessions(TOKEN, file)
    id, ended = before.begin(), before.begin()
    before.end(ended)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert id not in file.read_text()
    assert TOKEN not in file.read_text()
    after = Sessions(TOKEN, file)
    assert after.holds(id)
    assert not after.holds(ended)
    for hash in json.loads(file.read_text())["sessions"]:
        assert not after.holds(hash)


def test_another_token_ends_all_log_ins(tmp_path: Path) -> None:
    id = Sessions(TOKEN, tmp_path / "sessions").begin()
    assert not Sessions(TOKEN + "!", tmp_path / "sessions").holds(id)


def test_time_that_passes_between_two_runs_counts(tmp_path: Path) -> None:
    file = tmp_path / "sessions"
    id = Sessions(TOKEN, file, clock=lambda: 9e9, wall=lambda: NOW).begin()
    later = Sessions(TOKEN, file, clock=lambda: 5.0, wall=lambda: NOW + SESSION_S - 60)
    assert later.holds(id)
    assert not Sessions(TOKEN, file, clock=lambda: 5.0, wall=lambda: NOW + SESSION_S).holds(id)


def test_a_clock_that_was_set_back_makes_no_log_in_longer(tmp_path: Path) -> None:
    file, now = tmp_path / "sessions", 5.0
    id = Sessions(TOKEN, file, wall=lambda: NOW).begin()
    later = Sessions(TOKEN, file, clock=lambda: now, wall=lambda: 0.0)
    assert later.holds(id)
    now += SESSION_S
    assert not later.holds(id)


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
    assert len(sessions) == 0
    assert "damaged, so all browsers must log in again" in caplog.text
    assert file.with_name("sessions.damaged").read_text() == text
    id = sessions.begin()
    assert Sessions(TOKEN, file).holds(id)


def test_log_ins_that_cannot_be_read_now_are_known_later(tmp_path: Path) -> None:
    file = tmp_path / "sessions"
    before = Sessions(TOKEN, file)
    id, ended = before.begin(), before.begin()
    with unreadable(file):
        after = Sessions(TOKEN, file)
        assert not after.holds(id)
        new = after.begin()
        assert after.holds(new)
    after.end(ended)
    for sessions in (after, Sessions(TOKEN, file)):
        assert (sessions.holds(id), sessions.holds(new)) == (True, True)
        assert not sessions.holds(ended)


def test_log_ins_of_a_newer_version_are_left_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "sessions"
    file.write_text('{"version": 2}')
    sessions = Sessions(TOKEN, file)
    assert sessions.holds(sessions.begin())
    assert file.read_text() == '{"version": 2}'
    assert caplog.text.count("expected version 1, got 2") == 1


def test_a_file_holds_at_most_as_many_as_the_site(tmp_path: Path) -> None:
    file = tmp_path / "sessions"
    one = {"user": "anna", "stamp": ""}
    many = {f"{n:x}": one | {"ends": NOW + n + 1} for n in range(2 * MOST_SESSIONS)}
    file.write_text(json.dumps({"version": 1, "sessions": many}))
    assert len(Sessions(TOKEN, file, wall=lambda: NOW)) <= MOST_SESSIONS
    assert file.stat().st_size < MAX_FILE


def test_a_full_disk_keeps_nobody_out(caplog: pytest.LogCaptureFixture) -> None:
    with small_disk(1) as disk, caplog.at_level(logging.WARNING):
        sessions = Sessions(TOKEN, disk.path / "sessions")
        disk.fill()
        assert sessions.holds(sessions.begin())
    assert "sessions will not survive a restart" in caplog.text
