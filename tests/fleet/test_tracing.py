"""One message on its whole way: traced by real processes, received by a real OTLP server."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepvad.errors import MissingExtraError
from stepvad.fleet.broker.bus import Delivery
from stepvad.fleet.settings import TraceSettings
from stepvad.fleet.tracing import MOST_S, TRACEPARENT, Tracing
from stepvad.fleet.worker.journeys import MOST, Journeys
from stepvad.poses import Clip
from tests.fleet.collector import Span, collector, tree
from tests.fleet.traced import traced

WAY = {
    "edge": ["edge pack", "edge wait", "edge publish", "worker"],
    "worker": [
        *("worker deliver", "worker queue", "worker decode", "worker round"),
        *("worker windows", "worker score", "worker decide", "event"),
    ],
    "event": ["event publish", "writer"],
    "writer": ["writer deliver", "writer store"],
}
"""Each span's children."""


def children(spans: list[Span], of: Span) -> set[str]:
    return {span.name for span in spans if span.parent == of.id}


@pytest.mark.slow
def test_one_trace_leads_from_the_edge_to_the_database(
    tmp_path: Path, dsn: str, scenes: list[Clip]
) -> None:
    traces = traced(tmp_path, dsn, scenes[0]).traces()
    whole = [spans for spans in traces.values() if any(s.name == "writer" for s in spans)]
    assert 0 < len(whole) < len(traces)  # most frames change no event
    spans = whole[0]
    assert [span.name for span in spans if not span.parent] == ["edge"]
    for span in spans:
        assert children(spans, span) == set(WAY.get(span.name, [])), tree(spans)
    services = {span.name.split()[0]: span.service for span in spans}
    assert services["edge"] == "stepvad-edge"
    assert services["worker"] == services["event"] == "stepvad-worker"
    assert services["writer"] == "stepvad-writer"
    edge = spans[0]
    assert edge.facts["stepvad.camera"] == "test/c0"
    stages = [span for span in spans if span.parent == edge.id and span.service == edge.service]
    assert sum(span.ms for span in stages) == pytest.approx(edge.ms, abs=0.01)  # without a gap
    assert 0 < edge.ms < 5_000


def test_a_share_of_the_messages_is_traced() -> None:
    with collector() as found:
        tracing = Tracing(found.endpoint, 0.1, "edge")
        begun = [tracing.begin("edge", 1.0) for _ in range(1000)]
        tracing.close()
    assert 60 < sum(one is not None for one in begun) < 140


def test_a_site_that_asks_for_a_trace_of_everything_gets_so_many_a_second() -> None:
    asked = {TRACEPARENT: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    with collector() as found:
        tracing = Tracing(found.endpoint, 0.0, "worker")
        began = time.monotonic()
        traced = [tracing.go_on("worker", asked, 1.0) for _ in range(2000)]
        seconds = int(time.monotonic()) - int(began) + 1
        tracing.close()
    assert MOST_S <= sum(one is not None for one in traced) <= MOST_S * seconds < 2000


def test_a_header_that_is_none_or_not_sampled_starts_nothing() -> None:
    with collector() as found:
        tracing = Tracing(found.endpoint, 1.0, "worker")
        known = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
        for headers in (None, {}, {TRACEPARENT: "?"}, {TRACEPARENT: f"{known}-00"}):
            assert tracing.go_on("worker", headers, 1.0) is None
        journey = tracing.go_on("worker", {TRACEPARENT: f"{known}-01"}, 1.0)
        assert journey is not None
        journey.mark("worker deliver")
        journey.end("scored")
        journey.end("shed")  # it is over
        tracing.close()
        stage, whole = found.spans
    assert (whole.trace.hex(), whole.parent.hex()) == tuple(known.split("-")[1:])
    assert (stage.parent, stage.start, whole.start) == (whole.id, 1.0, 1.0)
    assert whole.facts == {"stepvad.outcome": "scored"}


def test_messages_that_never_come_to_an_end_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepvad.fleet.tracing.MOST_S", 10 * MOST)
    headers = {TRACEPARENT: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    deliveries = [Delivery("s", b"", n, 1.0, headers=headers) for n in range(MOST + 5)]
    with collector() as found:
        tracing, journeys = Tracing(found.endpoint, 1.0, "worker"), Journeys()
        journeys.begin(deliveries, tracing, "7")
        tracing.close()
        ended = [span for span in found.spans if span.name == "worker"]
    assert [span.facts["stepvad.outcome"] for span in ended] == ["not scored"] * 5
    assert {span.facts["stepvad.shard"] for span in ended} == {"7"}


def test_without_an_endpoint_nothing_of_it_is_loaded() -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\n"
            "import stepvad.fleet.worker.service, stepvad.fleet.edge.edge\n"
            "import stepvad.fleet.events.service\n"
            "from stepvad.fleet.settings import TraceSettings\n"
            "assert TraceSettings().opened('worker') is None\n"
            "print([name for name in sys.modules if name.startswith('opentelemetry')])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "[]"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(MissingExtraError, match=r"trace\.endpoint needs the trace extra"):
        TraceSettings(endpoint="http://127.0.0.1:1/v1/traces").opened("worker")
