"""How late events of sites are on the page of their fleet. Prints Markdown.

    python -m studies fleet-latency [--rate 200] [--seconds 60] [--sites 10]

Sites store events and send them by their outboxes; a real broker, a writer, PostgreSQL and the page
do the rest. An event is late by the time from its commit at the site to the first answer of
/api/events that has it. The page is asked every 0.1 s.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import numpy as np

from stepvad.events.record import Record, event_id
from stepvad.fleet.connection import ConnectionThread
from stepvad.fleet.outbox import FleetSink
from stepvad.site.stages import Supervisor
from stepvad.site.store.events import FILE_NAME, Store
from stepvad.site.store.outbox import SinkDelivery
from studies.figures import markdown
from tests.fleet.served import ServeProcess, serving
from tests.fleet.servers import Broker, broker, broker_settings, postgres_server
from tests.web.sites import BEARER

ASK_S, SHOWN = 0.1, 200
"""Interval of questions to the page, and how many events it shows."""
PATIENCE_S = 30.0
"""Longest wait for the last event."""


class Site:
    """A site that stores events without cameras, and sends them as sites do."""

    def __init__(self, directory: Path, name: str, server: Broker) -> None:
        directory.mkdir()
        self.name = name
        self._connection = ConnectionThread(broker_settings([server]), name)
        sink = FleetSink(self._connection, site=name)
        self._store = Store(directory / FILE_NAME, [sink.name])
        self._delivery = SinkDelivery(self._store.outbox, sink)
        self._supervisor = Supervisor()
        self._supervisor.start(self._delivery.stage)

    def close(self) -> None:
        """Stop."""
        self._supervisor.stop([self._delivery.stage], 10)
        self._connection.close()
        self._store.close()

    def store(self, number: int) -> tuple[str, float]:
        """Store an event; its id on the page of the fleet, and when it was committed."""
        now = time.time()
        record = Record(
            id=event_id("yard", 1, number, number),
            camera="yard",
            score=5.0,
            top_score=6.5,
            start_time=now,
            end_time=None,
            box=(10.0, 20.0, 110.0, 220.0),
            model_id="walkers",
            model_sha256="ab" * 32,
            track_id=number,
            tracks=(number,),
            epoch=1,
            frame_seq=number,
            confidence=0.9,
            threshold=3.0,
            scales=(0.1,) * 10,
            why="left arm raised",
            version=self._store.next_version(),
        )
        self._store.change("new", record)
        return f"{self.name}:{record.id}", time.monotonic()


def play(site: Site, rate: float, seconds: float, stored: dict[str, float]) -> None:
    """Store events of one site at a rate; one that falls behind stores them at once."""
    began = time.monotonic()
    for number in range(round(rate * seconds)):
        time.sleep(max(began + number / rate - time.monotonic(), 0.0))
        id, at = site.store(number)
        stored[id] = at


def watch(page: ServeProcess, seen: dict[str, float], stop: threading.Event) -> None:
    """Note when the page first shows each event."""
    with httpx.Client(base_url=page.url, headers=BEARER, timeout=PATIENCE_S) as client:
        while not stop.wait(ASK_S):
            answer = client.get("/api/events", params={"limit": SHOWN})
            now = time.monotonic()
            for one in answer.raise_for_status().json()["events"]:
                seen.setdefault(one["id"], now)


@contextmanager
def thread(work: threading.Thread) -> Iterator[None]:
    """Run a thread for a block, and wait for its end."""
    work.start()
    try:
        yield
    finally:
        work.join()


def measure(n_sites: int, rate: float, seconds: float) -> str:
    """Play the sites; how late their events were, as a table."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = stack.enter_context(postgres_server("fsync=on", "full_page_writes=on"))
        server = stack.enter_context(broker(directory / "broker"))
        page = stack.enter_context(serving(directory / "centre", server, database.dsn))
        sites = [
            stack.enter_context(closing(Site(directory / f"s{n}", f"s{n}", server)))
            for n in range(n_sites)
        ]
        stored: dict[str, float] = {}
        seen: dict[str, float] = {}
        stop = threading.Event()
        with thread(threading.Thread(target=watch, args=[page, seen, stop])):
            began = time.monotonic()
            players = [
                threading.Thread(target=play, args=[site, rate / n_sites, seconds, stored])
                for site in sites
            ]
            with ExitStack() as playing:
                for one in players:
                    playing.enter_context(thread(one))
            took_s = time.monotonic() - began
            late = time.monotonic() + PATIENCE_S
            while stored.keys() - seen.keys() and time.monotonic() < late:
                time.sleep(ASK_S)
            stop.set()
    late_s = [max(seen[id] - at, 0.0) for id, at in stored.items() if id in seen]
    p50, p99 = np.percentile(late_s, [50, 99])
    row = [f"{len(stored) / took_s:.0f}", str(len(stored)), str(len(stored) - len(late_s))]
    header = ["events a second", "stored at sites", "never seen", "p50", "p99", "most"]
    return markdown(header, [[*row, f"{p50:.2f} s", f"{p99:.2f} s", f"{max(late_s):.2f} s"]])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=200.0, help="events a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the run")
    parser.add_argument("--sites", type=int, default=10, help="sites that share the events")
    given = parser.parse_args(arguments)
    print(measure(given.sites, given.rate, given.seconds))


if __name__ == "__main__":
    main()
