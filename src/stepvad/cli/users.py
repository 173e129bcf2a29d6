"""stepvad users: who may log in to the page of a site or fleet."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from typer import Argument, Option, Typer, echo

from stepvad.cli import options, terminal
from stepvad.cli.events import unix_user
from stepvad.errors import ConfigError
from stepvad.site import accounts as library
from stepvad.site.accounts import Account, Accounts, Role

if TYPE_CHECKING:
    from stepvad.site.settings.page import Web

users = Typer(
    name="users",
    no_args_is_help=True,
    help="Manage who may log in to the page. Changes take effect with the next request.",
)
UserArgument = Annotated[str, Argument(metavar="NAME", help="Name of the user.")]


class OpenAccounts(NamedTuple):
    """The accounts of a page, and its address if it is known."""

    accounts: Accounts
    url: str | None


SiteOption = Annotated[
    Path,
    Option(
        "--site",
        "-s",
        metavar="SITE.toml|FLEET.toml|DATA",
        help="The site or fleet, given by its settings, or the data directory of a site.",
    ),
]


@contextmanager
def open_accounts(site: Path) -> Iterator[OpenAccounts]:
    """Open the accounts; the address of the page is that of the settings or the last start."""
    path, web = _accounts_of(site)
    with closing(Accounts(path)) as accounts:
        public = None if web is None else web.public_url
        bound = None if web is None or not web.port else web.url
        yield OpenAccounts(accounts, public or accounts.fact("url") or bound)


def _accounts_of(site: Path) -> tuple[Path, Web | None]:
    """The file of the accounts, and the settings of the page if they are given."""
    from stepvad.site.settings.file import load

    if site.suffix == ".toml":
        if _is_fleet(site):
            return _fleet_file(site)
        settings = load(site)
        return settings.web.accounts or settings.data / library.FILE_NAME, settings.web
    if not site.is_dir():
        raise ConfigError(
            f"{site}: expected settings or the data directory of a site, got nothing there",
            hint="give --site site.toml, or the directory that data names in it",
        )
    return site / library.FILE_NAME, None


def _is_fleet(file: Path) -> bool:
    """True if a file has settings of a fleet alone: a site has cameras."""
    from stepvad.fleet.settings import FleetSettings

    try:
        return tomllib.loads(file.read_text("utf-8")).keys() <= FleetSettings.model_fields.keys()
    except (OSError, ValueError):
        return False  # the settings of a site say what is wrong


def _fleet_file(fleet: Path) -> tuple[Path, Web | None]:
    web = options.load_fleet(fleet).web
    if web.accounts is None:
        raise ConfigError(
            f"{fleet}: expected accounts under [web], got none",
            hint="name a file on a disk that the page keeps, and restart it",
        )
    return web.accounts, web


@users.command()
def add(
    name: UserArgument,
    *,
    role: Annotated[
        str | None,
        Option(
            help="look, the default: see everything; judge: also mark events; "
            "administer: everything."
        ),
    ] = None,
    site: SiteOption = options.SITE_DATA,
    password_file: Annotated[
        Path | None, Option(help="File with the password on one line; prints no link.")
    ] = None,
) -> None:
    """Add a user, and print a link that lets them choose a password: once, within a day.

    A user who may mark events:

        stepvad users add anna --role judge --site site.toml

    A name that is known gets a new link, or the role or password that is given:

        stepvad users add anna --role administer --site site.toml
    """
    library.check_name(name)
    wanted = None if role is None else library.role_of(role)
    hash = None if password_file is None else _password_hash(name, password_file)
    with open_accounts(site) as opened:
        if opened.accounts.find(name) is None:
            account = opened.accounts.create(name, wanted or "look", hash)
            done = ["added user"]
        else:
            account, done = _renewed(opened.accounts, name, wanted, hash)
        # one line of the audit log for each change
        for action in done:
            roles = action in ("added user", "changed role of")
            subject = f"{account.name}: {account.role}" if roles else account.name
            opened.accounts.audit.record(unix_user(), action, subject)
        terminal.say(f"{account.name} may {account.role}")
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
def list_(*, site: SiteOption = options.SITE_DATA, as_json: options.AsJson = False) -> None:
    """List the users."""
    with open_accounts(site) as opened:
        found = opened.accounts.all()
    names = ("name", "role", "has_password", "created", "last_login", "link_expires")
    if as_json:
        terminal.print_json([{name: getattr(one, name) for name in names} for one in found])
        return
    time_of, rows = terminal.local_time, []
    for one in found:
        times = (time_of(one.created), time_of(one.last_login), time_of(one.link_expires))
        rows.append((one.name, one.role, "yes" if one.has_password else "not yet", *times))
    columns = ("name", "role", "password", "added", "last log-in", "link until")
    terminal.print_table(f"users: {len(found)}", columns, rows)


@users.command()
def remove(
    name: UserArgument, *, site: SiteOption = options.SITE_DATA, yes: options.Yes = False
) -> None:
    """Remove a user and end all their log-ins immediately.

    stepvad users remove anna --site site.toml
    """
    with open_accounts(site) as opened:
        account = opened.accounts.account(name)
        if not yes:
            options.confirm(f"Remove {account.name}, who may {account.role}?")
        opened.accounts.remove(account.name)
        opened.accounts.audit.record(unix_user(), "removed user", account.name)
    terminal.say(f"{account.name} is removed")


def _password_hash(name: str, file: Path) -> str:
    from stepvad.files import secret_line

    password = secret_line(file, "the password")
    library.check_password(password, name)
    return library.Passwords().hash(password)


def _print_link(opened: OpenAccounts, name: str) -> None:
    terminal.say(f"{name} chooses a password with this link, once, within a day:")
    echo((opened.url or "").rstrip("/") + library.link_path(opened.accounts.new_link(name)))
    if opened.url is None:
        terminal.say("put the address of the page in front of it: the site has not run yet")
