"""One-time links: the first log-in, and choosing a password."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import Response

from stepvad.accounts.accounts import Link
from stepvad.accounts.passwords import check_password
from stepvad.accounts.users import TOKEN_USER, Account, check_name
from stepvad.errors import StepvadError
from stepvad.web.forms import fields_of, form, part
from stepvad.web.identity import address_of
from stepvad.web.login import LogIn

WORTHLESS = "This link has been used or has expired. Ask for a new one."


class Links:
    """Answers at /first; looking at a link does not use it up, so a preview of it does no harm."""

    def __init__(self, login: LogIn) -> None:
        self.login, self.accounts = login, login.accounts
        self.run = login.background.run

    async def show(self, key: str) -> Response:
        """The form that the link leads to."""
        link = await self.run(self.accounts.link, key)
        return _worthless() if link is None else self._form(link, key)

    async def use(self, request: Request) -> Response:
        """Use the link once: log in, with a new password or as the first administrator."""
        fields = await fields_of(request)
        key = fields.get("key", "")
        address = address_of(request.scope)
        link = await self.run(self.accounts.link, key)  # nobody guesses its 256 bits
        if link is None:
            return _worthless()
        try:
            account = await self._redeem(link, key, fields)
        except StepvadError as error:
            return self._form(link, key, f"{error.problem}.", fields.get("name", ""))
        except LookupError:
            return _worthless()
        who = TOKEN_USER.name if account is None else account.name
        await self.login.trail.add(who, "used a log-in link", "", address)
        return await self.login.begin(request, account)

    async def _redeem(self, link: Link, key: str, fields: dict[str, str]) -> Account | None:
        """The account that logs in, or None for the token; LookupError if somebody was faster."""
        name = fields.get("name", "").strip()
        if link.account is None and not name:
            if not await self.run(self.accounts.use_first_link, key):
                raise LookupError
            return None
        password = fields.get("password", "")
        name = check_name(name) if link.account is None else link.account.name
        check_password(password, name)
        hash = await self.run(self.login.passwords.hash, password)
        if link.account is not None:
            account = await self.run(self.accounts.use_link, key, hash)
        elif await self.run(self.accounts.use_first_link, key):
            account = await self.run(self.accounts.add, name, "administer", hash)
            await self.login.trail.add(TOKEN_USER.name, "added user", f"{name}: administer")
        else:
            account = None
        if account is None:
            raise LookupError
        return account

    def _form(self, link: Link, key: str, problem: str = "", name: str = "") -> Response:
        status = 422 if problem else 200
        if link.account is not None:
            body = part("first-password", key=key, name=link.account.name)
            return form("first", problem, status, title="Choose a password", body_html=body)
        may_add = self.accounts.path is not None
        body = part("first-account", key=key, name=name) if may_add else ""
        body += part("first-token", key=key)
        return form("first", problem, status, title="First log-in", body_html=body)


def add_links(app: FastAPI, login: LogIn) -> None:
    """Add the page that log-in links lead to."""
    links = Links(login)

    @app.get("/first", include_in_schema=False)
    async def show(once: str = "") -> Response:
        return await links.show(once)

    @app.post("/first", include_in_schema=False)
    async def use(request: Request) -> Response:
        return await links.use(request)


def _worthless() -> Response:
    return form("first", WORTHLESS, 410, title="Log in", body_html=part("first-worthless"))
