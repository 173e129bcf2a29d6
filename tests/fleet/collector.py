"""Traces of a whole fleet: a receiver of OTLP over HTTP, and a run whose processes all trace."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from stepvad.formats import write_clip
from stepvad.poses import Clip
from tests.fleet.fleets import (
    RATE,
    Role,
    WorkerProcess,
    bus_section,
    prepare_servers,
    stored_records,
)
from tests.fleet.servers import Broker, broker
from tests.site.sites import NO_PAGE, write_site
from tests.video.servers import wait_until


class Span(NamedTuple):
    """What a collector learns of a span."""

    trace: bytes
    id: bytes
    parent: bytes
    service: str
    name: str
    start: float
    end: float
    facts: dict[str, Any]

    @property
    def ms(self) -> float:
        return 1e3 * (self.end - self.start)


@dataclass(slots=True)
class Collector:
    """The spans that came."""

    endpoint: str
    spans: list[Span] = field(default_factory=list)

    def traces(self) -> dict[bytes, list[Span]]:
        found: dict[bytes, list[Span]] = {}
        for span in sorted(self.spans, key=lambda span: (span.start, -span.end)):
            found.setdefault(span.trace, []).append(span)
        return found


def tree(spans: list[Span]) -> str:
    """The spans of one trace below their parents: since when, how long, what."""
    first = min(span.start for span in spans)

    def below(parent: bytes, indent: str) -> Iterator[str]:
        for span in spans:
            if span.parent == parent:
                yield f"{1e3 * (span.start - first):8.1f} {span.ms:8.1f}  {indent}{span.name}"
                yield from below(span.id, indent + "  ")

    return "\n".join(["   at ms       ms  span", *below(b"", "")])


def received(data: bytes) -> list[Span]:
    """The spans of an export."""
    return [
        Span(
            trace=span.trace_id,
            id=span.span_id,
            parent=span.parent_span_id,
            service=_facts(group.resource.attributes)["service.name"],
            name=span.name,
            start=span.start_time_unix_nano / 1e9,
            end=span.end_time_unix_nano / 1e9,
            facts=_facts(span.attributes),
        )
        for group in ExportTraceServiceRequest.FromString(data).resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _facts(attributes: Any) -> dict[str, Any]:
    return {one.key: one.value.string_value or one.value.int_value for one in attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    """A receiver on the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                data = gzip.decompress(data)
            made.spans.extend(received(data))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Collector(f"http://127.0.0.1:{server.server_port}/v1/traces")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_edge(directory: Path, server: Broker, clip: Clip, trace: str) -> Path:
    write_clip(clip, directory / "c0.parquet")
    camera = f'[[cameras]]\nname = "c0"\nurl = "c0.parquet"\nrate = {RATE}\n'
    fleet = f"[fleet]\n{bus_section(server, 'fleet.bus')}[fleet.trace]\n{trace}"
    return write_site(directory, camera, fleet, more=NO_PAGE)


def traced(directory: Path, dsn: str, clip: Clip) -> Collector:
    """Play a clip through a whole fleet, all of whose processes trace."""
    with collector() as found, broker(directory / "nats") as server:
        prepare_servers(dsn, server)
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
                wait_until(lambda: any(not one.is_open for one in stored_records(dsn)), 60)
                assert [one.stop() for one in (edge, worker, writer)] == [0, 0, 0]
        finally:
            worker.kill()
    return found
