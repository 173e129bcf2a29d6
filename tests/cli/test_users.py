"""stepvad users, and every command of users and events against those who may not use it.

Commands know no roles: whoever may write the data directory administers the site, and nobody else
gets anything out of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import typer

from stepvad.cli.events import events
from stepvad.cli.users import users
from stepvad.site.accounts import Accounts, Passwords
from stepvad.site.store.events import Store
from tests.conftest import Command
from tests.pages import ROOT
from tests.site.records import record

NOBODY = 65534
"""Another user of the machine."""
ID = "{id}"
PROGRAM = f"""
import json, os, sys
import stepvad.cli, typer.rich_utils

def run(commands):
    for words in commands:
        sys.argv = ["stepvad", *words]
        try:
            stepvad.cli.main()
        except SystemExit as end:
            print(end.code, flush=True)

first, second = json.loads(sys.argv[1])
run(first)  # another user cannot import everything
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
print("AS NOBODY")
run(second)
"""
WORDS: dict[str, list[str]] = {
    "users add": ["zoe", "-s", "{data}"],
    "users list": ["-s", "{data}"],
    "users remove": ["anna", "-y", "-s", "{data}"],
    "events list": ["-d", "{data}"],
    "events backup": ["{out}/backup.db", "-d", "{data}"],
    "events mark": [ID, "-d", "{data}"],
    "events delete": [ID, "-y", "-d", "{data}"],
    "events restore": ["{out}/backup.db", "-y", "-d", "{data}"],
}


def commands(group: typer.Typer, name: str) -> set[str]:
    named = {one.name or one.callback.__name__ for one in group.registered_commands if one.callback}
    return {f"{name} {one}" for one in named}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A site's data with an event and an account."""
    made = tmp_path / "site-data"
    made.mkdir(mode=0o700)
    with closing(Store(made / "events.db", ["mqtt"])) as store:
        store.change("new", record("yard", 1))
        store.change("end", record("yard", 1).ended("calm", 1011.0))
    with closing(Accounts(made / "accounts.db")) as accounts:
        accounts.create("anna", "look")
    return made


def words(command: str, data: Path, out: Path) -> list[str]:
    filled = [one.format(id=record("yard", 1).id, data=data, out=out) for one in WORDS[command]]
    return [*command.split(), *filled]


def log_of(data: Path) -> list[tuple[str, str]]:
    with closing(Accounts(data / "accounts.db")) as accounts:
        found = accounts.audit.entries(limit=1000)
    assert all(one.user.startswith("command line") for one in found)
    return [(one.action, one.subject) for one in reversed(found)]


def test_the_table_has_every_command() -> None:
    assert commands(users, "users") | commands(events, "events") == {*WORDS}


def test_the_owner_of_the_data_may_use_every_command(
    stepvad: Command, data: Path, tmp_path: Path
) -> None:
    for command in WORDS:
        done = stepvad(*words(command, data, tmp_path))
        assert done.code == 0, (command, done.err)
    id = record("yard", 1).id
    assert log_of(data) == [
        ("added user", "zoe: look"),
        ("removed user", "anna"),
        ("looked at the list of events", ""),
        ("backed up events", ""),
        ("marked event", f"{id}: normal"),
        ("deleted events", "1 events"),
        ("restored events", ""),
    ]


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root to be another user")
def test_another_user_of_the_machine_gets_nothing(
    stepvad: Command, data: Path, tmp_path: Path
) -> None:
    assert stepvad("events", "backup", str(tmp_path / "backup.db"), "-d", str(data)).code == 0
    for directory in (data, *data.parents[:2]):
        directory.chmod(0o755)  # the files protect themselves
    before = {path: path.read_bytes() for path in data.iterdir()}
    told = [
        [words(command, place, tmp_path) for command in WORDS]
        for place in (tmp_path / "nowhere", data)
    ]
    unmeasured = {name: value for name, value in os.environ.items() if "COV" not in name}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(told)], cwd=ROOT, env=unmeasured,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[:3000]
    codes = done.stdout.split("AS NOBODY")[1].split()
    assert [code in ("1", "2") for code in codes] == [True] * len(WORDS), codes
    assert "Traceback" not in done.stderr
    assert {path: path.read_bytes() for path in data.iterdir()} == before


def test_a_link_has_the_address_of_the_page(stepvad: Command, data: Path) -> None:
    added = stepvad("users", "add", "ben", "--role", "judge", "-s", str(data))
    assert added.out.startswith("/first?once=")
    assert "put the address of the page in front" in added.err
    with closing(Accounts(data / "accounts.db")) as accounts:
        accounts.set_fact("url", "http://127.0.0.1:8391/")
        link = stepvad("users", "add", "ben", "-s", str(data)).out.strip()
        assert link.startswith("http://127.0.0.1:8391/first?once=")
        assert accounts.link(link.partition("=")[2]) is not None
        assert accounts.link(added.out.strip().partition("=")[2]) is None
        assert accounts.account("ben").role == "judge"


def test_settings_say_where_the_accounts_and_the_page_are(
    stepvad: Command, data: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "site.toml"
    settings.write_text(
        f'data = "{data}"\nmodel = "m.safetensors"\n[[cameras]]\nname = "yard"\nurl = "demo:"\n'
        '[web]\naccounts = "elsewhere/people.db"\npublic_url = "https://cameras.example.org"\n'
        'trusted_proxies = ["127.0.0.1"]\n'
    )
    link = stepvad("users", "add", "ben", "-s", str(settings)).out
    assert link.startswith("https://cameras.example.org/first?once=")
    with closing(Accounts(tmp_path / "elsewhere" / "people.db")) as accounts:
        assert [one.name for one in accounts.all()] == ["ben"]


def test_the_accounts_of_a_fleet_are_where_its_settings_say(
    stepvad: Command, tmp_path: Path
) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('name = "north"\n')
    refused = stepvad("users", "list", "-s", str(fleet))
    assert "expected accounts under [web], got none" in refused.err
    fleet.write_text('name = "north"\n[web]\naccounts = "people.db"\n')
    assert stepvad("users", "add", "ben", "-s", str(fleet)).code == 0
    with closing(Accounts(tmp_path / "people.db")) as accounts:
        assert [one.name for one in accounts.all()] == ["ben"]


def test_a_password_can_be_given_instead(stepvad: Command, data: Path, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("correct horse battery\n")
    file.chmod(0o600)
    done = stepvad("users", "add", "ben", "-s", str(data), "--password-file", str(file))
    assert (done.code, done.out) == (0, "")
    with closing(Accounts(data / "accounts.db")) as accounts:
        assert Passwords().fits(accounts.password_hash("ben"), "correct horse battery")
    file.write_text("another horse battery\n")
    done = stepvad("users", "add", "ben", "-s", str(data), "--password-file", str(file))
    assert (done.code, done.out) == (0, "")
    with closing(Accounts(data / "accounts.db")) as accounts:
        assert Passwords().fits(accounts.password_hash("ben"), "another horse battery")
    assert log_of(data)[-1] == ("changed password of", "ben")
    file.write_text("short\n")
    done = stepvad("users", "add", "cleo", "-s", str(data), "--password-file", str(file))
    assert "password: expected 10 to 256 characters, got 5" in done.err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("add", "a b"), "name: expected a letter or digit"),
        (("add", "ben", "--role", "boss"), "role: expected look, judge, administer, got 'boss'"),
        (("remove", "nobody"), "user nobody: expected the name of an account"),
    ],
)
def test_what_cannot_be_done_is_said(
    stepvad: Command, data: Path, typed: tuple[str, ...], said: str
) -> None:
    done = stepvad("users", *typed, "-s", str(data))
    assert done.code == 1
    assert said in done.err


def test_a_directory_that_is_not_there_is_not_made(stepvad: Command, tmp_path: Path) -> None:
    done = stepvad("users", "list", "-s", str(tmp_path / "typo"))
    assert "expected settings or the data directory of a site" in done.err
    assert not (tmp_path / "typo").exists()


def test_lists_are_for_programs_too(stepvad: Command, data: Path) -> None:
    (anna,) = json.loads(stepvad("users", "list", "--json", "-s", str(data)).out)
    assert (anna["name"], anna["role"], anna["has_password"]) == ("anna", "look", False)
    assert "stamp" not in anna
    changed = stepvad("users", "add", "anna", "--role", "judge", "-s", str(data))
    assert (changed.out, "anna may judge" in changed.err) == ("", True)
    assert log_of(data) == [("changed role of", "anna: judge")]


def test_a_site_without_a_page_has_no_audit_log(stepvad: Command, data: Path) -> None:
    (data / "accounts.db").unlink()
    assert stepvad("events", "list", "-d", str(data)).code == 0
    assert not (data / "accounts.db").exists()


def test_a_broken_audit_log_does_not_undo_a_deletion(stepvad: Command, data: Path) -> None:
    (data / "accounts.db").write_text("no database, but long enough to be looked at" * 50)
    done = stepvad("events", "delete", "--all", "-y", "-d", str(data))
    assert done.code == 0
    assert "warning: the audit log misses this command" in done.err
