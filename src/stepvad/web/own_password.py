"""The form in which users change their own password."""

from __future__ import annotations

import math

from fastapi import FastAPI, Request
from fastapi.responses import Response

from stepvad.accounts.passwords import check_password
from stepvad.accounts.users import User
from stepvad.errors import StepvadError
from stepvad.web.forms import fields_of, form, told_to_wait
from stepvad.web.identity import address_of
from stepvad.web.login import LogIn


def add_own_password(app: FastAPI, login: LogIn) -> None:
    """Add the form; a new password ends all other log-ins of the account."""

    @app.get("/password", include_in_schema=False)
    async def show(request: Request) -> Response:
        return form("password", name=_user(request).name)

    @app.post("/password", include_in_schema=False)
    async def change(request: Request) -> Response:
        return await _change(request, login)


async def _change(request: Request, login: LogIn) -> Response:
    name, fields, address = _user(request).name, await fields_of(request), address_of(request.scope)
    is_right = login.fits(name, fields.get("password", ""))
    attempt = await login.identities.attempts.check(address, is_right)
    if attempt.wait_s > 0:
        said = f"Too many wrong passwords. Try again in {math.ceil(attempt.wait_s)} seconds."
        return told_to_wait(form("password", said, 429, name=name), attempt.wait_s)
    if not attempt.right:
        return form("password", "This is not your password.", 403, name=name)
    chosen = fields.get("new", "")
    try:
        check_password(chosen, name)
    except StepvadError as error:
        return form("password", f"{error.problem}.", 422, name=name)
    hash = await login.background.run(login.passwords.hash, chosen)
    account = await login.background.run(login.accounts.set_password, name, hash)
    await login.trail.add(name, "changed the password", "", address)
    return await login.begin(request, account)


def _user(request: Request) -> User:
    user: User = request.state.user
    return user
