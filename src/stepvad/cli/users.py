"""stepvad users: who may log in to the page of a site or fleet, and what they did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from stepvad.cli.events import unix_user
from stepvad.cli.options import Here, Yes, ask, time_of
from stepvad.cli.terminal import AsJson, check_fleet, print_json, print_table, say
from stepvad.errors import ConfigError

if TYPE_CHECKING:
    from stepvad.site.accounts import Account, Accounts, Role
    from stepvad.site.settings.page import Web

users = typer.Typer(
    name="users",
    no_args_is_help=True,
    help="Manage who may log in to the page, and see what they did.",
)
SiteOption = Annotated[
    Path,
    typer.Option(
        "--site",
        "-s",
        metavar="SITE.toml|DATA",
        help="The site, given by its settings or its data directory.",
    ),
]
FleetPage = Annotated[
    Path | None,
    typer.Option("--fleet", metavar="FLEET.toml", help="Use the accounts of a fleet's page."),
]
UserArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]
RoleText = Annotated[
    str | None,
    typer.Option(
        "--role",
        help="look, the default: see everything; judge: also mark events; administer: everything.",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", help="File with the password on one line; prints no link."),
]


class _Opened(NamedTuple):
    """The accounts of a page, and its address if it is known."""

    accounts: Accounts
    url: str | None

    def link(self, name: str) -> str:
        """A new log-in link; without an address only its path."""
        from stepvad.site.accounts import link_path

        return (self.url or "").rstrip("/") + link_path(self.accounts.new_link(name))


@users.callback()
def _group() -> None:
    """Manage who may log in to the page, and see what they did.

    Changes take effect with the next request, while the site runs.
    """


@users.command()
def add(
    name: UserArgument,
    *,
    role: RoleText = None,
    site: SiteOption = Here,
    fleet: FleetPage = None,
    password_file: PasswordFile = None,
) -> None:
    """Add a user, and print a link that lets them choose a password: once, within a day.

    A user who may mark events:

        stepvad users add anna --role judge --site site.toml

    A name that is known gets a new link, or the role or password that is given:

        stepvad users add anna --role administer --site site.toml
    """
    from stepvad.site.accounts import check_name, role_of

    check_name(name)
    wanted = None if role is None else role_of(role)
    hash = None if password_file is None else _password_hash(name, password_file)
    with _open(site, fleet) as opened:
        if opened.accounts.find(name) is None:
            account = opened.accounts.create(name, wanted or "look", hash)
            done = ["added user"]
        else:
            account, done = _renewed(opened.accounts, name, wanted, hash)
        for action in done:
            roles = action in ("added user", "changed role of")
            subject = f"{account.name}: {account.role}" if roles else account.name
            opened.accounts.audit.record(unix_user(), action, subject)
        say(f"{account.name} may {account.role}")
        if done == ["made log-in link for"] or (done == ["added user"] and hash is None):
            _print_link(opened, account.name)


def _renewed(
    accounts: Accounts, name: str, role: Role | None, hash: str | None
) -> tuple[Account, list[str]]:
    """A known account with a new role or password; what was done to it, else a link is due."""
    done = []
    if role is not None:
        accounts.set_role(name, role)
        done.append("changed role of")
    if hash is not None:
        accounts.set_password(name, hash)
        done.append("changed password of")
    return accounts.account(name), done or ["made log-in link for"]


@users.command("list")
def list_(*, site: SiteOption = Here, fleet: FleetPage = None, as_json: AsJson = False) -> None:
    """List the users."""
    with _open(site, fleet) as opened:
        found = opened.accounts.all()
    names = ("name", "role", "has_password", "created", "last_login", "link_expires")
    if as_json:
        print_json([{name: getattr(one, name) for name in names} for one in found])
        return
    rows = [
        (
            *(one.name, one.role, "yes" if one.has_password else "not yet"),
            *(_clock(one.created), _clock(one.last_login), _clock(one.link_expires)),
        )
        for one in found
    ]
    columns = ("name", "role", "password", "added", "last log-in", "link until")
    print_table(f"users: {len(found)}", columns, rows)


@users.command()
def remove(
    name: UserArgument, *, site: SiteOption = Here, fleet: FleetPage = None, yes: Yes = False
) -> None:
    """Remove a user and end all their log-ins immediately.

    stepvad users remove anna --site site.toml
    """
    with _open(site, fleet) as opened:
        account = opened.accounts.account(name)
        if not yes:
            ask(f"Remove {account.name}, who may {account.role}?")
        opened.accounts.remove(account.name)
        opened.accounts.audit.record(unix_user(), "removed user", account.name)
    say(f"{account.name} is removed")


@users.command()
def log(
    *,
    site: SiteOption = Here,
    fleet: FleetPage = None,
    user: Annotated[str | None, typer.Option("--user", help="Only lines of this user.")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only lines since this time: 2026-05-01T14:00, or 2d, 3h ago."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of lines.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Print the audit log, newest first: who looked at what, changed what, and logged in.

    stepvad users log --site site.toml --user anna --since 7d
    """
    begin = time_of(since, "--since")
    with _open(site, fleet) as opened:
        found = opened.accounts.audit.entries(user=user, since=begin, limit=limit)
    names = ("time", "user", "action", "subject", "address")
    if as_json:
        print_json([{name: getattr(one, name) for name in names} for one in found])
        return
    rows = [
        (_clock(one.time), one.user, one.action, one.subject, one.address or "-") for one in found
    ]
    print_table(f"lines: {len(found)}", ("time", "who", "what", "which", "from"), rows)


@contextmanager
def _open(site: Path, fleet: Path | None) -> Iterator[_Opened]:
    """Open the accounts of a site or of a fleet's page."""
    from stepvad.site.accounts import Accounts

    path, web = _site_place(site) if fleet is None else _fleet_place(fleet)
    accounts = Accounts(path)
    try:
        yield _Opened(accounts, _url(accounts, web))
    finally:
        accounts.close()


def _url(accounts: Accounts, web: Web | None) -> str | None:
    """The address of the page: as it was served last, or as the settings say."""
    public = None if web is None else web.public_url
    return public or accounts.fact("url") or (web.url if web is not None and web.port else None)


def _site_place(site: Path) -> tuple[Path, Web | None]:
    """The file of the accounts, and the settings of the page if they are given."""
    from stepvad.site.accounts import FILE_NAME
    from stepvad.site.settings.file import load

    if site.suffix == ".toml":
        settings = load(site)
        return settings.web.accounts or settings.data / FILE_NAME, settings.web
    if not site.is_dir():
        raise ConfigError(
            f"{site}: expected settings or the data directory of a site, got nothing there",
            hint="give --site site.toml, or the directory that data names in it",
        )
    return site / FILE_NAME, None


def _fleet_place(fleet: Path) -> tuple[Path, Web | None]:
    check_fleet()
    from stepvad.fleet.settings import load

    web = load(fleet).web
    if web.accounts is None:
        raise ConfigError(
            f"{fleet}: expected accounts under [web], got none",
            hint="name a file on a disk that the page keeps, and restart it",
        )
    return web.accounts, web


def _password_hash(name: str, file: Path) -> str:
    from stepvad.files import secret_line
    from stepvad.site.accounts import Passwords, check_password

    password = secret_line(file, "the password")
    check_password(password, name)
    return Passwords().hash(password)


def _print_link(opened: _Opened, name: str) -> None:
    say(f"{name} chooses a password with this link, once, within a day:")
    typer.echo(opened.link(name))
    if opened.url is None:
        say("put the address of the page in front of it: the site has not run yet")


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")
