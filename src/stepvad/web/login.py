"""The login form: name and password, or the token."""

from __future__ import annotations

import math

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from stepvad.accounts.audit import FAILED
from stepvad.accounts.passwords import LONGEST_PASSWORD, Passwords
from stepvad.accounts.users import TOKEN_USER, Account
from stepvad.web.attempts import Attempt
from stepvad.web.audit_trail import AuditTrail
from stepvad.web.forms import fields_of, form, log_in_browser, part, told_to_wait
from stepvad.web.identity import Identities, address_of
from stepvad.web.sessions import TOKEN_OWNER, Owner


class LogIn:
    """Logs browsers in, and says so in the audit log."""

    def __init__(self, identities: Identities, passwords: Passwords, trail: AuditTrail) -> None:
        self.identities, self.passwords, self.trail = identities, passwords, trail
        self.accounts, self.background = identities.accounts, identities.background

    async def with_token(self, request: Request, token: str) -> Response:
        """Log in whoever knows the token."""
        address = address_of(request.scope)
        attempt = self.identities.attempts.attempt(token.strip(), address)
        if attempt.right:
            return await self.begin(request, None)
        if attempt.wait_s == 0:
            await self.trail.add(TOKEN_USER.name, FAILED, "", address)
        return await self.failed(attempt, "tokens", "This is not the token of this site.")

    async def with_password(self, request: Request, name: str, password: str) -> Response:
        """Log in whoever knows the password of an account."""
        address = address_of(request.scope)
        is_right = self.fits(name, password)
        attempt = await self.identities.attempts.check(address, is_right)
        account = await self.background.run(self.accounts.find, name)
        if attempt.right and account is not None:
            return await self.begin(request, account)
        if attempt.wait_s == 0:
            # an unknown name may be a password in the wrong field
            known = "" if account is None else account.name
            await self.trail.add(known or "unknown name", FAILED, "", address)
        return await self.failed(attempt, "passwords", "Wrong name or password.")

    async def fits(self, name: str, password: str) -> bool:
        """Whether a password belongs to a name; it takes the same time for unknown names."""
        hash = await self.background.run(self.accounts.password_hash, name)
        short = password[: LONGEST_PASSWORD + 1]
        return await self.background.run(self.passwords.fits, hash, short)

    async def begin(self, request: Request, account: Account | None) -> Response:
        """Start a session of an account, or of the token."""
        owner = TOKEN_OWNER if account is None else Owner(account.name, account.stamp)
        if account is not None:
            await self.background.run(self.accounts.logged_in, account.name)
        await self.trail.add(owner.name, "logged in", "", address_of(request.scope))
        session = await self.identities.begin(owner)
        lasts_s = self.identities.sessions.longest_s
        return log_in_browser(request, self.identities.cookie, session, lasts_s)

    async def failed(self, attempt: Attempt, what: str, problem: str) -> Response:
        """The form again, with what was wrong or how long to wait."""
        if attempt.wait_s > 0:
            wait_s = math.ceil(attempt.wait_s)
            problem = f"Too many wrong {what}. Try again in {wait_s} seconds."
            return told_to_wait(await self.form(problem, 429), attempt.wait_s)
        return await self.form(problem, 401)

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
