"""Pages that are a form and need nothing else: no script, no file, before anybody is logged in."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files
from string import Template
from urllib.parse import parse_qs

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from stepvad.web.security import retry_after


async def fields_of(request: Request) -> dict[str, str]:
    """The fields of a submitted form; the first of each name counts."""
    body = (await request.body()).decode(errors="replace")
    return {name: values[0] for name, values in parse_qs(body).items()}


def form(page: str, problem: str = "", status: int = 200, **parts: str) -> HTMLResponse:
    """A page with its style inside; parts are escaped, except those that end in `_html`."""
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


def told_to_wait(answer: Response, wait_s: float) -> Response:
    """The same answer with a Retry-After header."""
    answer.headers.update(retry_after(wait_s))
    return answer


def log_in_browser(request: Request, cookie: str, session: str, lasts_s: float) -> Response:
    """Lead a browser to the page, with the cookie of its session."""
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        cookie,
        session,
        max_age=int(lasts_s),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


def _static(name: str) -> str:
    return files("stepvad.web").joinpath("static", name).read_text(encoding="utf-8")
