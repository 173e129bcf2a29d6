"""Errors of the NATS client as ours, and waiting while brokers elect a leader."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

# Loaded with the bus and nowhere else: hence at the top.
from nats import errors as client_errors  # noqa: TID253
from nats.js import errors  # noqa: TID253

from stepvad.errors import StepvadError
from stepvad.fleet.broker.bus import (
    ConflictError,
    LimitError,
    TooLargeError,
    UnavailableError,
)
from stepvad.retries import Backoff

JETSTREAM = (
    "start the broker with -js or a section jetstream; in a cluster, most brokers have to be up"
)
RUNNING = "is the broker running, and may this user do that?"
PERMITTED = "check user, password or certificate of the bus, and what the broker permits them"
SMALLER = "raise max_payload of the broker, or send less at a time"


class Meaning(NamedTuple):
    """The error to raise and its hint; `problem` replaces the client's message."""

    error: type[StepvadError]
    hint: str = ""
    problem: str = ""


CONFLICT = Meaning(ConflictError, problem="bus: expected to be the last who wrote, got another")
NO_JETSTREAM = Meaning(UnavailableError, JETSTREAM, "bus: expected JetStream, got none for now")
STORE_FAILED = 10077
"""A limit of the stream in bytes, messages or messages of one subject; or the disk failed."""
FULL = Meaning(LimitError, "does the writer of events run? it takes them out")
LARGE = Meaning(TooLargeError, SMALLER)
BY_CODE: dict[int, Meaning] = {
    10071: CONFLICT,  # wrong last sequence
    10164: CONFLICT,  # the same on a replicated stream
    10054: LARGE,
}
"""The broker's error code decides if there is one, otherwise the class."""
BY_CLASS: tuple[tuple[type[BaseException], Meaning], ...] = (
    (errors.KeyWrongLastSequenceError, CONFLICT),
    (errors.ServiceUnavailableError, NO_JETSTREAM),
    (errors.NoStreamResponseError, NO_JETSTREAM),
    (errors.NotFoundError, Meaning(UnavailableError)),  # the broker lost its memory: see setup
    (errors.APIError, Meaning(UnavailableError)),
    (client_errors.AuthorizationError, Meaning(UnavailableError, PERMITTED)),
    (client_errors.InvalidUserCredentialsError, Meaning(UnavailableError, PERMITTED)),
    (client_errors.MaxPayloadError, LARGE),
    (client_errors.Error, Meaning(UnavailableError, RUNNING)),
    (TimeoutError, Meaning(UnavailableError, RUNNING)),
    (OSError, Meaning(UnavailableError, RUNNING)),
)
"""The first matching class decides. An error that matches none is a bug."""


def meaning(error: BaseException) -> Meaning | None:
    """Look up an error; None if the tables do not list it."""
    # several client errors lack fields that their base class declares
    code = getattr(error, "err_code", None)
    if code in BY_CODE:
        return BY_CODE[code]
    if code == STORE_FAILED and "maximum" in (getattr(error, "description", None) or ""):
        return FULL
    return next((found for kind, found in BY_CLASS if isinstance(error, kind)), None)


@contextmanager
def answers() -> Iterator[None]:
    """Convert errors of the client to ours."""
    try:
        yield
    except Exception as error:
        found = meaning(error)
        if found is None:
            raise
        problem = found.problem or f"bus: expected an answer, got: {_words(error)}"
        raise found.error(problem, hint=found.hint) from None


def _words(error: Exception) -> str:
    told = getattr(error, "description", str(error))  # several lack this, too
    return f"{type(error).__name__} {told or ''}".rstrip()


LEADER_S = 20.0
"""How long a command waits for a leader."""
FIRST_S, LONGEST_S = 0.1, 1.0
"""First and longest time between attempts."""

T = TypeVar("T")


async def until_led(attempt: Callable[[], Awaitable[T]], within_s: float = LEADER_S) -> T:
    """Repeat what may be done twice until the brokers answer, or the time is over."""
    deadline, backoff = time.monotonic() + within_s, Backoff(FIRST_S, LONGEST_S)
    while True:
        try:
            return await attempt()
        except (UnavailableError, ConflictError):
            if time.monotonic() > deadline:
                raise
            await backoff.sleep()
