"""Read all keys of a NATS bucket in one request, without creating a consumer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stepvad.fleet.broker.bus import UnavailableError

if TYPE_CHECKING:
    from nats.aio.client import Client

END, NOTHING = "204", "404"
"""Status after the last key, and for an empty bucket."""


async def latest(client: Client, bucket: str, timeout_s: float) -> dict[str, bytes]:
    """Values of a bucket that are neither deleted nor expired, by key.

    A watcher would leave a consumer behind for minutes, and brokers handle only some hundreds.
    """
    found: dict[str, bytes] = {}
    prefix, inbox = f"$KV.{bucket}.", client.new_inbox()
    answers = await client.subscribe(inbox)
    try:
        question = json.dumps({"multi_last": [f"{prefix}>"]}).encode()
        await client.publish(f"$JS.API.DIRECT.GET.KV_{bucket}", question, reply=inbox)
        while True:
            answer = await answers.next_msg(timeout_s)
            headers = answer.headers or {}
            status = headers.get("Status")
            if status in (END, NOTHING):
                return found
            if status is not None:
                said = headers.get("Description", status)
                raise UnavailableError(f"bus: expected all keys of {bucket}, got: {said}")
            if "KV-Operation" not in headers:  # it was not deleted
                found[headers["Nats-Subject"].removeprefix(prefix)] = answer.data
    finally:
        await answers.unsubscribe()
