"""Every error of the NATS client that the table knows, and those that it must not swallow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from nats import errors as client_errors
from nats.js import errors

from stepvad.errors import StepvadError
from stepvad.fleet.broker.bus import (
    ConflictError,
    LimitError,
    TooLargeError,
    UnavailableError,
)
from stepvad.fleet.broker.nats import connected
from stepvad.fleet.broker.nats_errors import BY_CLASS, BY_CODE, answers
from tests.fleet.brokers import broker, bus_settings

RAISED: tuple[tuple[Exception, type[StepvadError], str], ...] = (
    (errors.APIError(code=400, err_code=10071), ConflictError, "the last who wrote"),
    (errors.BadRequestError(code=400, err_code=10164), ConflictError, "the last who wrote"),
    (errors.KeyWrongLastSequenceError("wrong last sequence: 7"), ConflictError, "who wrote"),
    (errors.ServiceUnavailableError(code=503), UnavailableError, "expected JetStream.*-js"),
    (errors.NoStreamResponseError(), UnavailableError, "expected JetStream.*-js"),
    (errors.NotFoundError(code=404, description="no message found"), UnavailableError, "no mess"),
    (errors.KeyNotFoundError(), UnavailableError, "key not found"),
    (errors.KeyDeletedError(), UnavailableError, "key was deleted"),
    (errors.APIError(code=500, description="no space left"), UnavailableError, "no space left"),
    (errors.APIError(), UnavailableError, "APIError"),
    (client_errors.AuthorizationError(), UnavailableError, "what the broker permits"),
    (client_errors.InvalidUserCredentialsError(), UnavailableError, "what the broker permits"),
    (client_errors.MaxPayloadError(), TooLargeError, "max_payload"),
    (errors.BadRequestError(code=400, err_code=10054), TooLargeError, "max_payload"),
    (
        errors.ServiceUnavailableError(
            code=503, err_code=10077, description="maximum messages per subject exceeded"
        ),
        LimitError,
        "limits of the tenant",
    ),
    (
        errors.ServiceUnavailableError(
            code=503, err_code=10077, description="no space left on device"
        ),
        UnavailableError,
        "expected JetStream",
    ),
    (client_errors.NoServersError(), UnavailableError, "is the broker running"),
    (client_errors.FlushTimeoutError(), UnavailableError, "is the broker running"),
    (TimeoutError(), UnavailableError, "TimeoutError"),
    (ConnectionRefusedError(111, "refused"), UnavailableError, "refused"),
)


@pytest.mark.parametrize(("error", "kind", "words"), RAISED, ids=lambda one: type(one).__name__)
def test_an_error_of_the_client_is_raised_as_the_table_says(
    error: Exception, kind: type[StepvadError], words: str
) -> None:
    with pytest.raises(kind, match=words) as told, answers():
        raise error
    assert "None" not in str(told.value)


def test_every_entry_of_the_tables_is_tried() -> None:
    codes = {getattr(error, "err_code", None) for error, _, _ in RAISED}
    assert codes >= set(BY_CODE)
    first = {next(kind for kind, _ in BY_CLASS if isinstance(e, kind)) for e, _, _ in RAISED}
    assert first == {kind for kind, _ in BY_CLASS}


@pytest.mark.parametrize("error", [KeyError("a fault of ours"), ValueError("another")])
def test_what_the_table_does_not_know_passes(error: Exception) -> None:
    with pytest.raises(type(error)), answers():
        raise error


def test_a_key_that_a_real_broker_does_not_have_is_an_error_of_ours(tmp_path: Path) -> None:
    async def run() -> None:
        with broker(tmp_path) as one:
            async with connected(bus_settings([one]), "test") as bus:
                await bus.setup()
                with pytest.raises(UnavailableError, match="key not found"), answers():
                    await bus._state._keys.get("nobody")

    asyncio.run(run())
