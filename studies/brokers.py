"""Bare publish and consume on NATS JetStream, and on a Kafka that already runs.

python -m studies brokers [--sync] [--records 10000] [--kafka 127.0.0.1:9092]

NATS is started here, on a disk, with `sync_interval: always` if --sync. --kafka takes a broker
without login (0.9 or newer) and needs confluent-kafka; one topic with one partition is made there.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from tests.fleet.servers import Broker

SIZE, ALONE, IN_FLIGHT = 1000, 300, 512


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--kafka")
    told = parser.parse_args(arguments)
    if told.kafka is not None:
        kafka(told.kafka, told.records)
        return
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(Path(directory))
        if not told.sync:
            config = broker._config.read_text()
            broker._config.write_text(config.replace("sync_interval: always", ""))
        broker.start()
        try:
            asyncio.run(nats(broker.address, told.records))
        finally:
            broker.kill()


async def nats(address: str, n: int) -> None:
    """Acknowledged one at a time, many in flight, and read with acknowledgements."""
    client = Client()
    await client.connect(address)
    js = client.jetstream()
    await js.add_stream(name="E", subjects=["e.>"])
    record, times = b"x" * SIZE, []
    for _ in range(ALONE):
        begin = time.perf_counter()
        await js.publish("e.1", record)
        times.append(time.perf_counter() - begin)
    show_alone(times)
    begin = time.perf_counter()
    for first in range(0, n, IN_FLIGHT):
        many = range(first, min(first + IN_FLIGHT, n))
        await asyncio.gather(*(js.publish("e.1", record, timeout=60) for _ in many))
    show("published", n, begin)
    pull = await js.pull_subscribe("e.>", "reader", stream="E")
    begin, done = time.perf_counter(), 0
    while done < n:
        found = await pull.fetch(500, timeout=10)
        for message in found:
            await message.ack()
        done += len(found)
    show("read", done, begin)
    await client.close()


def kafka(address: str, n: int) -> None:
    """The same on Kafka, with librdkafka."""
    import confluent_kafka as library  # type: ignore[import-not-found]

    base = {
        "bootstrap.servers": address,
        "api.version.request": False,
        "broker.version.fallback": "0.9.0.1",
    }
    topic, record = f"measure-{int(time.time())}", b"x" * SIZE
    producer = library.Producer({**base, "acks": "all", "linger.ms": 0})
    producer.produce(topic, record)
    producer.flush(20)
    times = []
    for _ in range(ALONE):
        begin = time.perf_counter()
        producer.produce(topic, record)
        producer.flush(20)
        times.append(time.perf_counter() - begin)
    show_alone(times)
    producer = library.Producer({**base, "acks": "all", "linger.ms": 5})
    begin = time.perf_counter()
    for number in range(n):
        producer.produce(topic, record)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(60)
    show("published", n, begin)
    consumer = library.Consumer({**base, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([library.TopicPartition(topic, 0, 0)])
    read_all(consumer.consume, n)
    consumer.close()


def read_all(consume: Callable[[int, float], list[Any]], n: int) -> None:
    """Read so many records, timed from the first batch on."""
    done, begin = 0, 0.0
    while done < n:
        found = [one for one in consume(500, 5.0) if one.error() is None]
        begin = begin or time.perf_counter()
        done += len(found)
    show("read", done, begin)


def show(what: str, n: int, begin: float) -> None:
    """Records a second."""
    print(f"{what}: {n / (time.perf_counter() - begin):,.0f} a second")


def show_alone(times: list[float]) -> None:
    """Median and 99 % of the time until one record is acknowledged."""
    ordered = sorted(times)
    median, late = ordered[len(ordered) // 2], ordered[int(0.99 * len(ordered))]
    print(f"one at a time: median {1e3 * median:.2f} ms, 99 % {1e3 * late:.2f} ms")
