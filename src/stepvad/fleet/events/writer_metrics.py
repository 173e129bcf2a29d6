"""Prometheus metrics of an event writer."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from stepvad.errors import ConfigError
from stepvad.fleet.events.writer import WriterStats

COUNTED = {
    "written": ("stepvad_fleet_changes_written", "Changes of events stored, or known already."),
    "claims": ("stepvad_fleet_claims", "Messages by which workers took shards."),
    "dead": ("stepvad_fleet_events_unreadable", "Messages that are no events."),
    "retries": ("stepvad_fleet_events_retries", "How often bus or database did not answer."),
    "deleted": ("stepvad_fleet_events_expired", "Events deleted because they were too old."),
}
MEASURED = {
    "waiting": ("stepvad_fleet_events_waiting", "Messages on the bus that wait to be stored."),
    "stored": ("stepvad_fleet_events_stored", "Events in the database, about."),
    "open": ("stepvad_fleet_events_open", "Events that go on."),
    "stale": ("stepvad_fleet_events_stale", "Events that go on, and silent for long."),
    "last_write": ("stepvad_fleet_last_write_seconds", "Unix time of the last transaction."),
    "database_up": ("stepvad_fleet_database_up", "Whether the database answers."),
}


class WriterMetrics(Collector):
    """Collector that reads the counters on each scrape."""

    def __init__(self, counts: WriterStats) -> None:
        self.counts = counts

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        for field, (name, words) in COUNTED.items():
            yield CounterMetricFamily(name, words, value=getattr(self.counts, field))
        for field, (name, words) in MEASURED.items():
            yield GaugeMetricFamily(name, words, value=float(getattr(self.counts, field)))


def serve(counts: WriterStats, address: str) -> None:
    """Serve the metrics at HOST:PORT."""
    registry = CollectorRegistry()
    registry.register(WriterMetrics(counts))
    host, _, port = address.rpartition(":")
    try:
        start_http_server(int(port), host, registry)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"events.metrics: expected to listen at {address}, got: {error}"
        ) from None
