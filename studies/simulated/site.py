"""A site of a fleet without cameras: a real store, outbox and delivery, and events by a seed.

    python -m studies.simulated.site SITE.toml --rate 5 --acks FILE --stop FILE

Each change that the broker acknowledged becomes a line of the file of acks: event, kind, version.
Once the stop file is there, no event begins; it exits 0 when nothing waits.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from stepvad.codec import encode
from stepvad.errors import StepvadError
from stepvad.events.record import Record, SinkMessage, event_id
from stepvad.events.rules import ChangeKind
from stepvad.fleet import streams
from stepvad.fleet.connection import Connection, ConnectionThread
from stepvad.fleet.outbox import FleetSink, SiteStart
from stepvad.site.event_writer import EventWriter, TaskQueue
from stepvad.site.settings.file import load
from stepvad.site.stages import Supervisor
from stepvad.site.status import LiveStatus
from stepvad.site.store.changes import PendingChange
from stepvad.site.store.events import FILE_NAME, Store
from stepvad.site.store.outbox import SinkDelivery

MOST_OPEN = 5
IDLE_S = 240.0


class ListedSink(FleetSink):
    """Writes down what the broker has acknowledged."""

    def __init__(self, connection: ConnectionThread, *, site: str, acks: Path) -> None:
        super().__init__(connection, site=site)
        self._acks = acks.open("a", buffering=1)

    def send(self, kind: ChangeKind, message: SinkMessage) -> None:
        super().send(kind, message)
        self._acks.write(f"{message.after.id} {kind} {message.after.version}\n")


def begun(camera: str, epoch: int, frame: int) -> Record:
    return Record(
        id=event_id(camera, epoch, 1, frame),
        camera=camera,
        score=1.0,
        top_score=1.0,
        start_time=time.time(),
        model_id="m",
        model_sha256="0" * 64,
        track_id=1,
        tracks=(1,),
        epoch=epoch,
        frame_seq=frame,
        confidence=0.9,
        threshold=1.0,
        box=(1.0, 2.0, 3.0, 4.0),
        why="x" * 200,
    )


def play(store: Store, rate: float, stop: Path, rng: random.Random) -> None:
    """Begin, change and end events until the stop file is there."""
    epoch, frame, going_on = store.next_epoch("yard"), 0, list[Record]()

    def put(kind: ChangeKind, record: Record) -> None:
        store.changes.put(PendingChange(kind, record, time.monotonic()))

    while not stop.exists():
        time.sleep(rng.expovariate(rate))
        if len(going_on) < MOST_OPEN and rng.random() < 0.4:
            frame += 1
            going_on.append(begun("yard", epoch, frame))
            put("new", going_on[-1])
        elif going_on:
            at = rng.randrange(len(going_on))
            changed = replace(going_on[at], top_score=going_on[at].top_score + rng.random())
            if rng.random() < 0.5:
                going_on[at] = changed
                put("update", changed)
            else:
                del going_on[at]
                put("end", changed.ended("calm", time.time()))
    for one in going_on:
        put("end", one.ended("stopped", time.time()))


def tell_start(store: Store, site: str, connection: ConnectionThread) -> None:
    """As the link of a site does, once its store can be read."""

    async def publish(broker: Connection) -> None:
        start = SiteStart(
            site=site,
            id=f"start-{time.time_ns()}",
            version=store.next_version(),
            start_time=time.time(),
            open=tuple(one.id for one in store.events(open=True)),
        )
        await broker.publish(streams.events(site), encode(start))

    while True:
        with suppress(StepvadError):
            connection.ask(publish, 5.0)
            return
        time.sleep(1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", type=Path)
    parser.add_argument("--rate", type=float, default=5.0, help="changes a second")
    parser.add_argument("--acks", type=Path, required=True)
    parser.add_argument("--stop", type=Path, required=True)
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    settings = load(given.settings)
    assert settings.fleet is not None
    connection = ConnectionThread(settings.fleet, settings.name)
    sink = ListedSink(connection, site=settings.name, acks=given.acks)
    settings.data.mkdir(parents=True, exist_ok=True)
    store = Store(settings.data / FILE_NAME, [sink.name], later=True, busy_s=2.0)
    store.check()
    status = LiveStatus()
    status.camera("yard", rate=10.0, threshold=1.0, model="m", zones={})
    writer = EventWriter(store.changes, store.change, status, TaskQueue())
    delivery = SinkDelivery(store.outbox, sink, first_s=0.1, longest_s=1.0)
    threading.Thread(
        target=tell_start, args=[store, settings.name, connection], daemon=True
    ).start()
    supervisor = Supervisor()
    for stage in (writer.stage, delivery.stage):
        supervisor.start(stage)
    checking = threading.Event()

    def check() -> None:
        while not checking.wait(2.0):
            store.check()

    threading.Thread(target=check, daemon=True).start()
    play(store, given.rate, given.stop, random.Random(f"{settings.name} {time.time_ns()}"))
    ends = time.monotonic() + IDLE_S
    while time.monotonic() < ends and (len(store.changes) or not delivery.is_idle):
        time.sleep(0.1)
    return 0 if delivery.is_idle and not len(store.changes) else 1


if __name__ == "__main__":
    sys.exit(main())
