"""The accounts of a page that is about to be served."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

from stepvad.accounts.accounts import Accounts, link_path
from stepvad.accounts.database import FILE_NAME
from stepvad.settings.web import Web

logger = logging.getLogger(__name__)


def open_accounts(web: Web, data: Path | None) -> Accounts:
    """The accounts that the settings name, or those beside the data; else there are none."""
    beside = None if data is None else data / FILE_NAME
    return Accounts(web.accounts or beside, audit_days=web.audit_days)


def tell_first_link(accounts: Accounts, web: Web, url: str) -> None:
    """Remember the address of the page for log-in links, and log the first one if it is needed."""
    address = web.public_url or url
    accounts.set_fact("url", web.public_url or _from_elsewhere(web, url))
    if accounts.path is None:
        return  # nothing would tell the next start that it is not the first
    key = accounts.first_link()
    if key is not None:
        link = address.rstrip("/") + link_path(key)
        logger.info("open %s to log in; it works once, within an hour", link)


def _from_elsewhere(web: Web, url: str) -> str:
    """The URL by the machine's name, if the page listens on all its addresses."""
    if web.host not in ("0.0.0.0", "::"):  # noqa: S104  # compared, not bound
        return url
    scheme, port = url.partition(":")[0], url.rstrip("/").rpartition(":")[2]
    return f"{scheme}://{socket.gethostname()}:{port}/"
