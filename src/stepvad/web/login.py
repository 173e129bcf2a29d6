"""Logging in and out: form, log-in link and one's own password."""

from __future__ import annotations

import base64
import hashlib
import math
from contextlib import suppress
from html import escape
from importlib.resources import files
from string import Template
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from stepvad.errors import StepvadError
from stepvad.site import accounts as library
from stepvad.site.accounts import TOKEN_USER, Account, Link, Passwords
from stepvad.site.store.database import StoreError
from stepvad.web.guard import AuditTrail, retry_after
from stepvad.web.identity import TOKEN_OWNER, Identities, Owner, address_of

WORTHLESS = "This link has been used or has expired. Ask for a new one."


class LogIn:
    """Logs browsers in, and says so in the audit log."""

    def __init__(self, identities: Identities, passwords: Passwords, trail: AuditTrail) -> None:
        self.identities, self.passwords, self.trail = identities, passwords, trail
        self.accounts, self.background = identities.accounts, identities.background

    async def with_token(self, request: Request, token: str) -> Response:
        """Log in whoever knows the token."""
        if self.identities.is_token(token, request.scope):
            return await self.start_session(request, None)
        address = address_of(request.scope)
        await self.trail.record_look(TOKEN_USER.name, library.FAILED, "", address)
        return await self.form("This is not the token of this site.", 401)

    async def with_password(self, request: Request, name: str, password: str) -> Response:
        """Log in whoever knows the password of an account."""
        address = address_of(request.scope)
        is_right = self.fits(name, password)
        attempt = await self.identities.guesses.check(name, address, is_right)
        account = await self.background.run(self.accounts.find, name)
        if attempt.right and account is not None:
            return await self.start_session(request, account)
        if attempt.wait_s > 0:
            form = await self.form(too_many(attempt.wait_s), 429)
            return with_retry_after(form, attempt.wait_s)
        # an unknown name may be a password in the wrong field
        known = "unknown name" if account is None else account.name
        await self.trail.record(known, library.FAILED, "", address)
        return await self.form("Wrong name or password.", 401)

    async def fits(self, name: str, password: str) -> bool:
        """Whether a password belongs to a name; it takes the same time for unknown names."""
        # an unknown name is compared with a hash, too
        hash = await self.background.run(self.accounts.password_hash, name)
        short = password[: library.LONGEST_PASSWORD + 1]
        return await self.background.run(self.passwords.fits, hash, short)

    async def start_session(self, request: Request, account: Account | None) -> Response:
        """Start a session of an account, or of the token."""
        owner = TOKEN_OWNER if account is None else Owner(account.name, account.stamp)
        if account is not None:
            with suppress(StoreError):  # a disk that cannot be written keeps nobody out
                await self.background.run(self.accounts.logged_in, account.name)
        await self.trail.record(owner.name, "logged in", "", address_of(request.scope))
        sessions = self.identities.sessions
        session = await self.background.run(sessions.start, owner)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            self.identities.cookie,
            session,
            max_age=int(sessions.longest_s),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    async def form(self, problem: str = "", status: int = 200) -> Response:
        """Name and password first, if there are accounts; else the token."""
        no_accounts = await self.background.run(self.accounts.is_empty)
        forms = part("login-token") if no_accounts else part("login-password")
        return form("login", problem, status, forms_html=forms)


def add_login(app: FastAPI, login: LogIn) -> None:
    """Add the login form, login and logout."""

    @app.get("/login", include_in_schema=False)
    async def login_form() -> Response:
        return await login.form()

    @app.post("/login", include_in_schema=False)
    async def log_in(request: Request) -> Response:
        fields = await fields_of(request)
        if "name" in fields:
            return await login.with_password(
                request, fields["name"].strip(), fields.get("password", "")
            )
        return await login.with_token(request, fields.get("token", ""))

    @app.post("/logout", include_in_schema=False)
    async def log_out(request: Request) -> Response:
        cookie, sessions = login.identities.cookie, login.identities.sessions
        await run_in_threadpool(sessions.end, request.cookies.get(cookie, ""))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(
            cookie, httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )
        return answer


class Links:
    """Answers at /first; looking at a link does not use it up, so a preview of it does no harm."""

    def __init__(self, login: LogIn) -> None:
        self.login, self.accounts = login, login.accounts
        self.run = login.background.run

    async def show(self, once: str = "") -> Response:
        """The form that the link with this key leads to."""
        link = await self.run(self.accounts.link, once)
        return _worthless() if link is None else self._form(link, once)

    async def use(self, request: Request) -> Response:
        """Use the link once: log in, with a new password or as the first administrator."""
        fields = await fields_of(request)
        key = fields.get("key", "")
        address = address_of(request.scope)
        link = await self.run(self.accounts.link, key)  # no limit: nobody guesses its 256 bits
        if link is None:
            return _worthless()
        try:
            account = await self._redeem(link, key, fields)
        except StepvadError as error:
            return self._form(link, key, f"{error.problem}.", fields.get("name", ""))
        except LookupError:
            return _worthless()
        who = TOKEN_USER.name if account is None else account.name
        await self.login.trail.record(who, "used a log-in link", "", address)
        return await self.login.start_session(request, account)

    async def _redeem(self, link: Link, key: str, fields: dict[str, str]) -> Account | None:
        """The account that logs in, or None for the token; LookupError if somebody was faster."""
        # the first link may also log in with the token's rights, without an account
        name = fields.get("name", "").strip()
        if link.account is None and not name:
            if not await self.run(self.accounts.use_first_link, key):
                raise LookupError
            return None
        password = fields.get("password", "")
        name = library.check_name(name) if link.account is None else link.account.name
        library.check_password(password, name)
        hash = await self.run(self.login.passwords.hash, password)
        if link.account is not None:
            account = await self.run(self.accounts.use_link, key, hash)
        elif await self.run(self.accounts.use_first_link, key):
            account = await self.run(self.accounts.create, name, "administer", hash)
            await self.login.trail.record(TOKEN_USER.name, "added user", f"{name}: administer")
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
    app.get("/first", include_in_schema=False)(links.show)
    app.post("/first", include_in_schema=False)(links.use)


def _worthless() -> Response:
    return form("first", WORTHLESS, 410, title="Log in", body_html=part("first-worthless"))


def add_own_password(app: FastAPI, login: LogIn) -> None:
    """Add the form; a new password ends all other log-ins of the account."""

    @app.get("/password", include_in_schema=False)
    async def show(request: Request) -> Response:
        return form("password", name=request.state.user.name)

    @app.post("/password", include_in_schema=False)
    async def change(request: Request) -> Response:
        return await _change_password(request, login)


async def _change_password(request: Request, login: LogIn) -> Response:
    name: str = request.state.user.name
    fields, address = await fields_of(request), address_of(request.scope)
    # the old password first: a browser that was left alone must not lock its owner out
    is_right = login.fits(name, fields.get("password", ""))
    attempt = await login.identities.guesses.check(name, address, is_right)
    if attempt.wait_s > 0:
        refused = form("password", too_many(attempt.wait_s), 429, name=name)
        return with_retry_after(refused, attempt.wait_s)
    if not attempt.right:
        return form("password", "This is not your password.", 403, name=name)
    chosen = fields.get("new", "")
    try:
        library.check_password(chosen, name)
    except StepvadError as error:
        return form("password", f"{error.problem}.", 422, name=name)
    hash = await login.background.run(login.passwords.hash, chosen)
    account = await login.background.run(login.accounts.set_password, name, hash)
    await login.trail.record(name, "changed the password", "", address)
    return await login.start_session(request, account)


async def fields_of(request: Request) -> dict[str, str]:
    """The fields of a submitted form; the first of each name counts."""
    body = (await request.body()).decode(errors="replace")
    return {name: values[0] for name, values in parse_qs(body).items()}


def form(page: str, problem: str = "", status: int = 200, **parts: str) -> HTMLResponse:
    """A page with its style inside; parts are escaped, except those that end in `_html`."""
    # the one style that may apply is named by its hash
    sheet, html = _static("login.css"), _static(f"{page}.html")
    digest = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    sentence = escape(problem[:1].upper() + problem[1:])
    said = f'<p id="problem" role="alert">{sentence}</p>' if problem else ""
    escaped = {
        name: text if name.endswith("_html") else escape(text) for name, text in parts.items()
    }
    filled = Template(html).substitute(escaped, style=sheet, problem=said)
    return HTMLResponse(filled, status, {"Content-Security-Policy": policy})


def part(page: str, /, **parts: str) -> str:
    """A piece of such a page, for a part that ends in `_html`."""
    return Template(_static(f"{page}.html")).substitute(
        {name: escape(text) for name, text in parts.items()}
    )


def too_many(wait_s: float) -> str:
    """The words for somebody who guesses."""
    return f"Too many wrong passwords. Try again in {math.ceil(wait_s)} seconds."


def with_retry_after(answer: Response, wait_s: float) -> Response:
    """The same answer with a Retry-After header."""
    answer.headers.update(retry_after(wait_s))
    return answer


def _static(name: str) -> str:
    return files("stepvad.web").joinpath("static", name).read_text(encoding="utf-8")
