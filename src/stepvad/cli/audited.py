"""Commands on the events of a site enter its audit log, as the page does."""

from __future__ import annotations

import getpass
from pathlib import Path

from stepvad.cli.terminal import say
from stepvad.errors import StepvadError


def unix_user() -> str:
    """Who runs the command, for the audit log; no account can have this name."""
    try:
        return f"command line ({getpass.getuser()})"
    except (OSError, KeyError):  # a container's user without a name
        return "command line"


def note(data: Path, action: str, subject: str = "") -> None:
    """Write a line into the audit log in a data directory, if its site has one."""
    from stepvad.accounts.accounts import Accounts
    from stepvad.accounts.database import FILE_NAME

    if not (data / FILE_NAME).is_file():
        return
    try:
        accounts = Accounts(data / FILE_NAME)
        try:
            accounts.audit.add(unix_user(), action, subject)
        finally:
            accounts.close()
    except StepvadError as error:  # what was asked for is done
        say(f"warning: the audit log misses this command: {error.problem}")
