"""The process that talks to notification services; it may hang, so its parent can kill it.

It reads one task as JSON from stdin and answers with lines of JSON.
"""

from __future__ import annotations

import base64
import json
import signal
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from stepvad.codec import Fields, JsonObject

if TYPE_CHECKING:
    from apprise import AppriseAsset

MOST_AT_ONCE = 8
POST_S = 10.0
"""Timeout for connecting to a push service, and for each read of its answer."""
MOST_WORDS = 300


def main() -> None:
    """Run one task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the site stops its children
    task = Fields.of("task", json.loads(sys.stdin.read()))
    # even without its parent this process ends; the default action works in any system call
    signal.alarm(task.whole("deadline_s") + 2)
    match task.text("task"):
        case "check":
            _answer(_checked(task.text("url")))
        case "notify":
            _answer(_notified(task.text("url"), task.text("title"), task.text("body")))
        case "post":
            _post_all([Fields.of("request", one) for one in task.items("requests")])


def _answer(facts: JsonObject) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def _checked(url: str) -> JsonObject:
    """Whether Apprise understands an address; makes no connection."""
    from apprise import Apprise, LogCapture

    with LogCapture(level=30, fmt="%(message)s") as log:
        known = Apprise(asset=_asset()).add(url)
        return {"ok": bool(known), "words": _last_line(log.getvalue())}


def _notified(url: str, title: str, body: str) -> JsonObject:
    """Send one message through Apprise."""
    from apprise import Apprise, LogCapture, NotifyFormat, NotifyType

    with LogCapture(level=30, fmt="%(message)s") as log:
        service = Apprise(asset=_asset())
        done = bool(service.add(url)) and bool(
            service.notify(
                body=body,
                title=title,
                notify_type=NotifyType.WARNING,
                body_format=NotifyFormat.TEXT,
            )
        )
        return {"ok": done, "words": _last_line(log.getvalue())}


def _asset() -> AppriseAsset:
    """Apprise without pictures from elsewhere and files of its own."""
    from apprise import AppriseAsset

    return AppriseAsset(
        app_id="stepvad",
        app_desc="stepvad",
        app_url="",
        image_url_mask="",
        image_url_logo="",
        image_path_mask="",
        storage_mode="memory",
        pgp_autogen=False,
        async_mode=False,
    )


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:MOST_WORDS] if lines else ""


def _post_all(requests: list[Fields]) -> None:
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        posted = {pool.submit(_post, request): n for n, request in enumerate(requests)}
        for done in as_completed(posted):
            _answer({"request": posted[done]} | done.result())


def _post(request: Fields) -> JsonObject:
    """Post once, without following redirects; the answer's body is not read."""
    import httpx

    headers = {str(name): str(value) for name, value in request.fields("headers").values.items()}
    body = base64.b64decode(request.text("body"))
    try:
        with (
            httpx.Client(timeout=POST_S, follow_redirects=False) as client,
            client.stream("POST", request.text("url"), content=body, headers=headers) as answer,
        ):
            return {"status": answer.status_code}
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return {"status": 0, "words": type(error).__name__}


if __name__ == "__main__":
    main()
