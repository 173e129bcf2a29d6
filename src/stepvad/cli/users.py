"""stepvad users: who may log in to the page of a site or fleet, and what they did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
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
    help="Manage who may log in to the page, and see what they did.",
)
UserArgument = Annotated[str, Argument(metavar="NAME", help="Name of the user.")]


@users.callback()
def _group() -> None:
    """Manage who may log in to the page, and see what they did.

    Changes take effect with the next request, while the site runs.
    """


class OpenAccounts(NamedTuple):
    """The accounts of a page, and its address if it is known."""

    accounts: Accounts
    url: str | None


@dataclass(frozen=True, slots=True)
class PageOptions:
    """The page that has the accounts: that of a site or fleet."""

    site: Annotated[
        Path,
        Option(
            "--site",
            "-s",
            metavar="SITE.toml|DATA",
            help="The site, given by its settings or its data directory.",
        ),
    ] = options.SITE_DATA
    fleet: Annotated[
        Path | None,
        Option("--fleet", metavar="FLEET.toml", help="Use the accounts of a fleet's page."),
    ] = None

    @contextmanager
    def opened(self) -> Iterator[OpenAccounts]:
        """Open the accounts; the address of the page is that of the settings or the last start."""
        path, web = _site_file(self.site) if self.fleet is None else _fleet_file(self.fleet)
        with closing(Accounts(path)) as accounts:
            public = None if web is None else web.public_url
            bound = None if web is None or not web.port else web.url
            yield OpenAccounts(accounts, public or accounts.fact("url") or bound)


def _site_file(site: Path) -> tuple[Path, Web | None]:
    """The file of a site's accounts, and the settings of the page if they are given."""
    from stepvad.site.settings.file import load

    if site.suffix == ".toml":
        settings = load(site)
        return settings.web.accounts or settings.data / library.FILE_NAME, settings.web
    if not site.is_dir():
        raise ConfigError(
            f"{site}: expected settings or the data directory of a site, got nothing there",
            hint="give --site site.toml, or the directory that data names in it",
        )
    return site / library.FILE_NAME, None


def _fleet_file(fleet: Path) -> tuple[Path, Web | None]:
    web = options.load_fleet(fleet).web
    if web.accounts is None:
        raise ConfigError(
            f"{fleet}: expected accounts under [web], got none",
            hint="name a file on a disk that the page keeps, and restart it",
        )
    return web.accounts, web


@users.command()
@options.grouped
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
    page: PageOptions,
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
    with page.opened() as opened:
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
@options.grouped
def list_(*, page: PageOptions, as_json: options.AsJson = False) -> None:
    """List the users."""
    with page.opened() as opened:
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
@options.grouped
def remove(name: UserArgument, *, page: PageOptions, yes: options.Yes = False) -> None:
    """Remove a user and end all their log-ins immediately.

    stepvad users remove anna --site site.toml
    """
    with page.opened() as opened:
        account = opened.accounts.account(name)
        if not yes:
            options.confirm(f"Remove {account.name}, who may {account.role}?")
        opened.accounts.remove(account.name)
        opened.accounts.audit.record(unix_user(), "removed user", account.name)
    terminal.say(f"{account.name} is removed")


@users.command()
@options.grouped
def log(
    *,
    page: PageOptions,
    user: Annotated[str | None, Option("--user", help="Only lines of this user.")] = None,
    since: Annotated[
        str | None, Option(help="Only lines since this time: 2026-05-01T14:00, or 2d, 3h ago.")
    ] = None,
    limit: Annotated[int, Option(min=1, help="Maximum number of lines.")] = 50,
    as_json: options.AsJson = False,
) -> None:
    """Print the audit log, newest first: who looked at what, changed what, and logged in.

    stepvad users log --site site.toml --user anna --since 7d
    """
    begin = options.parse_time(since, "--since")
    with page.opened() as opened:
        found = opened.accounts.audit.entries(user=user, since=begin, limit=limit)
    # the row number of the database stays inside
    names = ("time", "user", "action", "subject", "address")
    if as_json:
        terminal.print_json([{name: getattr(one, name) for name in names} for one in found])
        return
    rows = [
        (terminal.local_time(one.time), one.user, one.action, one.subject, one.address or "-")
        for one in found
    ]
    terminal.print_table(f"lines: {len(found)}", ("time", "who", "what", "which", "from"), rows)


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
