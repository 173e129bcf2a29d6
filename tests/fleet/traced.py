"""A whole fleet that traces: an edge, a broker, a worker, a writer, a database, a collector."""

from __future__ import annotations

from pathlib import Path

from stepvad.formats import write_clip
from stepvad.poses import Clip
from tests.fleet.brokers import Broker, broker
from tests.fleet.collector import Collector, collector
from tests.fleet.fleets import RATE, WorkerProcess
from tests.fleet.roles import Role, bus_section
from tests.fleet.test_a_fleet import prepare, stored
from tests.site.sites import NO_PAGE, write_site
from tests.video.servers import wait_until


def write_edge(directory: Path, server: Broker, clip: Clip, trace: str) -> Path:
    write_clip(clip, directory / "c0.parquet")
    camera = f'[[cameras]]\nname = "c0"\nurl = "c0.parquet"\nrate = {RATE}\n'
    fleet = f"[fleet]\n{bus_section(server, 'fleet.bus')}[fleet.trace]\n{trace}"
    return write_site(directory, camera, fleet, more=NO_PAGE)


def traced(directory: Path, dsn: str, clip: Clip) -> Collector:
    """Play a clip through a whole fleet, all of whose processes trace."""
    with collector() as found, broker(directory / "nats") as server:
        prepare(dsn, server)
        trace = f'endpoint = "{found.endpoint}"\n'
        settings = directory / "fleet.toml"
        settings.write_text(bus_section(server) + f'[events]\ndsn = "env:DSN"\n[trace]\n{trace}')
        more: dict[str, object] = {"endpoint": found.endpoint}
        worker = WorkerProcess(directory, [server], "w1", records=False, trace=more)
        site = write_edge(directory, server, clip, trace + "ratio = 1.0\n")
        worker.start()
        try:
            with Role("events", settings, DSN=dsn) as writer, Role("edge", site) as edge:
                wait_until(lambda: "the file is over" in edge.log.read_text())
                wait_until(lambda: any(not one.is_open for one in stored(dsn)), 60)
                assert [one.stop() for one in (edge, worker, writer)] == [0, 0, 0]
        finally:
            worker.kill()
    return found
