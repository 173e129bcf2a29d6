"""The login form."""

from __future__ import annotations

import base64
import hashlib
import math
from html import escape
from importlib.resources import files
from string import Template
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from stepvad.web.attempts import Attempts
from stepvad.web.security import address_of, retry_after
from stepvad.web.sessions import SESSION_S, Sessions


def add_login(app: FastAPI, attempts: Attempts, sessions: Sessions, cookie: str) -> None:
    """Add the login form, login and logout."""

    @app.get("/login", include_in_schema=False)
    async def form() -> Response:
        return _form("")

    @app.post("/login", include_in_schema=False)
    async def log_in(request: Request) -> Response:
        fields = parse_qs((await request.body()).decode(errors="replace"))
        given = fields.get("token", [""])[0].strip()
        attempt = attempts.attempt(given, address_of(request.scope))
        if attempt.wait_s > 0:
            wait_s = math.ceil(attempt.wait_s)
            answer = _form(f"Too many wrong tokens. Try again in {wait_s} seconds.", 429)
            answer.headers.update(retry_after(attempt.wait_s))
            return answer
        if not attempt.right:
            return _form("This is not the token of this site.", 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            cookie,
            await run_in_threadpool(sessions.begin),
            max_age=int(SESSION_S),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    @app.post("/logout", include_in_schema=False)
    async def log_out(request: Request) -> Response:
        await run_in_threadpool(sessions.end, request.cookies.get(cookie, ""))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(
            cookie, httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )
        return answer


def _form(problem: str, status: int = 200) -> Response:
    sheet, page = (
        files("stepvad.web").joinpath("static", name).read_text(encoding="utf-8")
        for name in ("login.css", "login.html")
    )
    said = f'<p id="problem" role="alert">{escape(problem)}</p>' if problem else ""
    digest = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    html = Template(page).substitute(style=sheet, problem=said)
    return HTMLResponse(html, status, {"Content-Security-Policy": policy})
