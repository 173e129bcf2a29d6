"""The form that asks for the token."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files
from string import Template
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from stepvad.web.security import Token

COOKIE_S = 30 * 86400
"""How long a browser stays logged in."""


def add_login(app: FastAPI, token: Token, site: str) -> None:
    """The form, what it sends to, and the way out."""

    @app.get("/login", include_in_schema=False)
    def form() -> Response:
        return _form("")

    @app.post("/login", include_in_schema=False)
    async def log_in(request: Request) -> Response:
        fields = parse_qs((await request.body()).decode(errors="replace"))
        if not token.fits(fields.get("token", [""])[0].strip()):
            return _form("This is not the token of this site.", 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            token.cookie_name,
            token.cookie,
            max_age=COOKIE_S,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    @app.post("/logout", include_in_schema=False)
    def log_out() -> Response:
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(token.cookie_name, httponly=True, samesite="strict")
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
