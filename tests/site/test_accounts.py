"""Accounts, their links and the audit log, as the page and the command line share them."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from stepvad.errors import ConfigError, DataError, StepvadError
from stepvad.site import accounts as audit
from stepvad.site.accounts import (
    ACCOUNTS,
    FAILED,
    FIRST_LINK_S,
    LINK_S,
    ROLES,
    Accounts,
    Passwords,
    User,
    check_password,
    is_name,
    role_of,
)


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def accounts(tmp_path: Path, clock: Clock) -> Iterator[Accounts]:
    with closing(Accounts(tmp_path / "accounts.db", wall=clock)) as made:
        yield made


def test_each_role_includes_those_before() -> None:
    for n, role in enumerate(ROLES):
        assert [User("anna", role).may(needed) for needed in ROLES] == [
            m <= n for m in range(len(ROLES))
        ]
        assert role_of(role) == role
    with pytest.raises(ConfigError, match="expected look, judge, administer, got 'boss'"):
        role_of("boss")


@pytest.mark.parametrize(
    ("name", "is_fit"),
    [
        ("anna", True),
        ("anna.b+cams@example.org", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("", False),
        ("-anna", False),
        ("anna b", False),
        ("anna\n", False),
        ("änne", False),
        ("token", False),
        ("Token", False),
    ],
)
def test_names(accounts: Accounts, name: str, is_fit: bool) -> None:
    assert is_name(name) == is_fit
    if is_fit:
        assert accounts.create(name, "look").name == name
    else:
        with pytest.raises(ConfigError, match="name: expected a letter or digit"):
            accounts.create(name, "look")


def test_another_process_sees_a_change_at_once(accounts: Accounts, tmp_path: Path) -> None:
    with closing(Accounts(tmp_path / "accounts.db")) as other:
        accounts.create("Anna", "look", "hash")
        seen = other.account("anna")  # in any case
        assert (seen.name, seen.role, seen.has_password) == ("Anna", "look", True)
        other.set_role("ANNA", "judge")
        assert accounts.account("Anna").user == User("Anna", "judge")
        with pytest.raises(ConfigError, match="user aNNa: expected a new name"):
            other.create("aNNa", "look")
        other.remove("anna")
        assert accounts.find("Anna") is None
        assert accounts.is_empty()


@pytest.mark.parametrize("verb", ["set_role", "set_password", "remove", "new_link"])
def test_unknown_names_are_said_to_be(accounts: Accounts, verb: str) -> None:
    values = {"set_role": ["look"], "set_password": ["hash"]}.get(verb, [])
    with pytest.raises(DataError, match="user nobody: expected the name of an account"):
        getattr(accounts, verb)("nobody", *values)


def test_a_password_or_a_new_account_changes_the_stamp_and_a_role_does_not(
    accounts: Accounts,
) -> None:
    first = accounts.create("anna", "look", "hash").stamp
    assert accounts.set_role("anna", "judge").stamp == first
    second = accounts.set_password("anna", "other").stamp
    accounts.remove("anna")
    third = accounts.create("anna", "judge", "other").stamp
    assert len({first, second, third}) == 3


def test_the_file_is_for_its_owner_alone_and_holds_no_key(
    accounts: Accounts, tmp_path: Path
) -> None:
    accounts.create("anna", "look")
    key = accounts.new_link("anna")
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert key.encode() not in file.read_bytes()


def test_a_link_works_once(accounts: Accounts) -> None:
    accounts.create("anna", "look")
    key = accounts.new_link("anna")
    for _ in range(2):  # looking at it does not use it up
        link = accounts.link(key)
        assert link is not None
        assert link.account == accounts.account("anna")
    used = accounts.use_link(key, "hash")
    assert used is not None
    assert used.has_password
    assert accounts.link(key) is None
    assert accounts.use_link(key, "hash of a thief") is None
    assert accounts.password_hash("anna") == "hash"


def test_a_link_ends_by_time_by_another_and_with_its_account(
    accounts: Accounts, clock: Clock
) -> None:
    accounts.create("anna", "look")
    key = accounts.new_link("anna")
    clock.now += LINK_S - 1
    assert accounts.link(key) is not None
    assert accounts.account("anna").link_expires == clock.now + 1
    clock.now += 1
    assert accounts.link(key) is None
    assert accounts.use_link(key, "hash") is None
    assert accounts.account("anna").link_expires is None
    first, second = accounts.new_link("anna"), accounts.new_link("anna")
    assert accounts.link(first) is None
    accounts.remove("anna")
    accounts.create("anna", "administer")
    assert accounts.link(second) is None


def test_the_first_link_logs_in_one_administrator(accounts: Accounts, clock: Clock) -> None:
    before, key = accounts.first_link(), accounts.first_link()
    assert before is not None
    assert key is not None
    assert not accounts.use_first_link(before)  # of the start before
    assert accounts.use_link(key, "hash") is None  # it is of no account
    assert accounts.use_first_link(key)
    assert not accounts.use_first_link(key)
    assert accounts.first_link() is None  # at no later start


def test_the_first_link_ends_by_time_and_with_the_first_account(
    accounts: Accounts, clock: Clock
) -> None:
    key = accounts.first_link()
    assert key is not None
    clock.now += FIRST_LINK_S
    assert not accounts.use_first_link(key)
    key = accounts.first_link()
    assert key is not None
    accounts.create("anna", "administer")
    assert not accounts.use_first_link(key)
    assert accounts.first_link() is None


def test_a_key_of_an_account_is_no_first_link(accounts: Accounts) -> None:
    accounts.create("anna", "look")
    assert not accounts.use_first_link(accounts.new_link("anna"))


def test_without_a_file_nobody_can_be_added() -> None:
    with closing(Accounts()) as accounts:
        with pytest.raises(ConfigError, match=r"web\.accounts: expected a file"):
            accounts.create("anna", "look")
        accounts.audit.record("token", "looked at event", "e-1")
        assert [one.subject for one in accounts.audit.entries()] == ["e-1"]


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    foreign, newer, text = (tmp_path / name for name in ("foreign", "newer", "text"))
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE wine (year)")
    with closing(sqlite3.connect(newer)) as connection:
        connection.executescript(
            f"CREATE TABLE users (name); PRAGMA application_id = {ACCOUNTS.application_id};"
            "PRAGMA user_version = 99"
        )
    text.write_text("no database, but long enough to be looked at" * 50)
    for path, problem in (
        (foreign, "expected accounts, got another SQLite database"),
        (newer, "expected accounts of version 1, got 99"),
        (text, "file is not a database"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(StepvadError, match=problem):
            Accounts(path)


def test_the_audit_log_is_read_from_its_end(accounts: Accounts, clock: Clock) -> None:
    for number in range(5):
        clock.now += 1
        accounts.audit.record(
            "anna" if number % 2 else "ben", "looked at event", f"e-{number}", "::1"
        )
    log = accounts.audit
    assert [one.subject for one in log.entries(limit=2)] == ["e-4", "e-3"]
    assert [one.subject for one in log.entries(before=log.entries(limit=2)[-1].seq)] == [
        *("e-2", "e-1", "e-0")
    ]
    newest = log.entries(limit=1)[0]
    assert (newest.time, newest.user, newest.address) == (clock.now, "ben", "::1")


def test_the_audit_log_is_bounded_by_days_and_rows(
    accounts: Accounts, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MOST_ROWS", 30)
    monkeypatch.setattr(audit, "MOST_FAILED", 10)
    monkeypatch.setattr(audit, "PRUNE_EVERY", 1)
    for number in range(40):
        accounts.audit.record("anna", "looked at event", f"e-{number}")
    for _ in range(200):  # a stranger who guesses
        accounts.audit.record("unknown name", FAILED)
    found = accounts.audit.entries(limit=1000)
    assert sum(one.action == FAILED for one in found) == 10
    assert [one.subject for one in found[10:]] == [f"e-{n}" for n in range(39, 9, -1)]
    clock.now += 86400 * audit.AUDIT_DAYS + 1
    accounts.audit.record("ben", "logged in", "x" * 10_000)
    (only,) = accounts.audit.entries(limit=1000)
    assert len(only.subject) == audit.LONGEST_TEXT


@pytest.mark.parametrize(
    ("password", "problem"),
    [
        ("short", "expected 10 to 256 characters, got 5"),
        ("x" * 257, "expected 10 to 256 characters, got 257"),
        ("Anna1234567", "hard to guess"),
        ("aaaaaaaaaaaaaaa", "hard to guess"),
        ("abababababababab", "hard to guess"),
    ],
)
def test_weak_passwords_are_refused(password: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_password(password, "anna")


def test_passwords_are_hashed_with_argon2id() -> None:
    passwords = Passwords()
    hash = passwords.hash("correct horse")
    assert hash.startswith("$argon2id$")
    assert hash != passwords.hash("correct horse")
    assert passwords.fits(hash, "correct horse")
    assert not passwords.fits(hash, "correct horses")
    assert not passwords.fits("no hash", "correct horse")
    assert not passwords.fits(None, "nobody has this password")


def test_an_unknown_name_takes_as_long_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords, verified = Passwords(), []
    hash = passwords.hash("correct horse")
    verify = PasswordHasher.verify

    def noted(self: PasswordHasher, hash: str, password: str) -> bool:
        verified.append(hash.rpartition("$")[0].rpartition("$")[0])  # its parameters
        return verify(self, hash, password)

    monkeypatch.setattr(PasswordHasher, "verify", noted)
    passwords.fits(hash, "wrong")
    passwords.fits(None, "wrong")
    assert verified[0] == verified[1]
