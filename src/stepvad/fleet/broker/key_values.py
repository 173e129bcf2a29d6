"""All keys of a bucket on NATS in one question, without a consumer that the broker would keep."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stepvad.fleet.broker.bus import UnavailableError

if TYPE_CHECKING:
    from nats.aio.client import Client

END, NOTHING = "204", "404"
"""What the broker says behind the last key, and where there is none."""


async def latest(client: Client, bucket: str, timeout_s: float) -> dict[str, bytes]:
    """The values of a bucket that are neither deleted nor too old, by their keys.

    A watcher would do the same and leave a consumer behind for minutes; brokers bear some hundreds.
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
