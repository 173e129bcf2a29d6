"""The process that talks to notification services; it may hang, so its parent can kill it.

It reads one task as JSON from stdin and answers with lines of JSON.
"""

from __future__ import annotations

import signal
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stepvad.codec import Count, decode, encode

if TYPE_CHECKING:
    from apprise import AppriseAsset


MOST_AT_ONCE = 8
POST_S = 10.0
"""Timeout for connecting to a push service, and for each read of its answer."""
MOST_WORDS = 300


@dataclass(frozen=True, slots=True)
class PushRequest:
    """A message to a browser, encrypted, and the address of its push service."""

    url: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Task:
    """A message to a service, the check of its address, or messages to browsers."""

    task: Literal["check", "notify", "post"]
    url: str = ""
    title: str = ""
    body: str = ""
    requests: tuple[PushRequest, ...] = ()
    deadline_s: Count = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a task, or of one of its requests."""

    ok: bool = False
    words: str = ""
    """A reason, if there is one."""
    request: Count = 0
    status: Count = 0
    """Of HTTP; 0 without an answer."""


def main() -> None:
    """Run one task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the site stops its children
    # one task, from a pipe: no secret is in a command line
    task = decode(Task, sys.stdin.buffer.read(), "task")
    # even without its parent this process ends; the default action works in any system call
    signal.alarm(task.deadline_s + 2)
    match task.task:
        case "check":
            _answer(_checked(task.url))
        case "notify":
            _answer(_notified(task.url, task.title, task.body))
        case "post":
            # browsers one beside the other, each answer as soon as it is there
            with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
                posted = [pool.submit(_post, n, one) for n, one in enumerate(task.requests)]
                for done in as_completed(posted):
                    _answer(done.result())


def _answer(answer: Answer) -> None:
    sys.stdout.buffer.write(encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def _checked(url: str) -> Answer:
    """Check that Apprise understands an address; makes no connection."""
    from apprise import Apprise, LogCapture

    with LogCapture(level=30, fmt="%(message)s") as log:
        known = Apprise(asset=_asset()).add(url)
        return Answer(bool(known), _last_line(log.getvalue()))


def _notified(url: str, title: str, body: str) -> Answer:
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
        return Answer(done, _last_line(log.getvalue()))


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


def _post(number: int, request: PushRequest) -> Answer:
    """Post once, without following redirects; the answer's body is not read."""
    import httpx

    try:
        with (
            httpx.Client(timeout=POST_S, follow_redirects=False) as client,
            client.stream(
                "POST", request.url, content=request.body, headers=request.headers
            ) as answer,
        ):
            return Answer(request=number, status=answer.status_code)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return Answer(request=number, words=type(error).__name__)


if __name__ == "__main__":
    main()
