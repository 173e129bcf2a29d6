"""The live status as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from stepvad.site.stages import Health
from stepvad.site.status import BUCKETS_S, Delays, Field, LiveStatus

HEALTHY = Health()
Measured = tuple[type[Counter] | type[Gauge], str, str, Callable[[Any], float | None]]
"""A kind of metric, its name and its words, and the value of one camera, sink or stage."""


def _counted(field: Field, name: str, words: str) -> Measured:
    """A counter of each camera."""
    return Counter, name, words, lambda camera: camera.counts[field]


CAMERAS: tuple[Measured, ...] = (
    _counted("frames_in", "frames_in", "Frames that arrived."),
    _counted("scored", "frames_scored", "Frames that were scored."),
    _counted("shed", "frames_shed", "Frames dropped because of overload."),
    _counted("skipped", "frames_skipped", "Frames skipped to keep the rate of the settings."),
    _counted("windows", "windows", "Windows that were scored."),
    _counted("flat_windows", "windows_flat", "Windows without any motion."),
    _counted("muted_windows", "windows_muted", "Windows of mostly interpolated poses."),
    _counted("events", "events", "Events that started."),
    _counted("restarts", "restarts", "Processes that were restarted."),
    _counted("reconnects", "reconnects", "Times that the camera was reconnected."),
    (Gauge, "camera_up", "Whether a camera is online.", lambda one: one.state == "online"),
    (Gauge, "camera_failed", "Whether a camera has failed.", lambda one: one.state == "failed"),
    (Gauge, "camera_fps", "Frames a second that are scored.", lambda one: one.fps or 0.0),
    (
        *(Gauge, "camera_drifted", "Whether a camera no longer looks as it did in calibration."),
        lambda one: one.drifted,
    ),
    (
        *(Gauge, "camera_left_out_ratio"),
        "Share of the frames of the last 10 s that were left out.",
        lambda one: one.load.left_out,
    ),
    (
        *(Gauge, "camera_rate"),
        "Frames a second that are asked for; fewer than set while the machine is busy.",
        lambda one: one.rate / one.load.divisor,
    ),
    (Gauge, "people", "People in the latest frame.", lambda one: one.people),
    (Gauge, "threshold", "Score above which a person raises an event.", lambda one: one.threshold),
)
SINKS: tuple[Measured, ...] = (
    (Gauge, "sink_lag", "Messages waiting for a sink.", lambda one: one.lag),
    (
        *(Counter, "sink_failures", "Failed attempts to deliver a message to a sink."),
        lambda one: one.failures,
    ),
    (Counter, "sink_refused", "Messages that became dead letters.", lambda one: one.refused),
)
STAGES: tuple[Measured, ...] = (
    (
        *(Gauge, "stage_heartbeat_age_seconds", "Time since a stage last made progress."),
        lambda one: one.age_s,
    ),
    (
        *(Gauge, "stage_heartbeat_deadline_seconds"),
        "Heartbeat age at which a stage counts as hanging.",
        lambda one: one.deadline_s,
    ),
)


class SiteMetrics(Collector):
    """Collects metrics from the live status on every scrape; keeps no counters of its own."""

    def __init__(self, status: LiveStatus, version: str, health: Health) -> None:
        self.status, self.version, self.health = status, version, health

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        now = self.status.snapshot()
        yield InfoMetricFamily("stepvad", "The running version.", value={"version": self.version})
        yield Gauge("stepvad_uptime_seconds", "Time since the start.", value=now.uptime_s)
        yield Gauge("stepvad_troubles", "Troubles that go on.", value=len(now.troubles))
        yield from _families(CAMERAS, "camera", now.cameras)
        yield from _families(SINKS, "sink", now.sinks)
        yield from _families(STAGES, "stage", self.health.stages)
        yield _histogram(
            "stepvad_latency_seconds",
            "From the arrival of a frame to its scores.",
            ((camera.name, camera.latency) for camera in now.cameras),
        )
        yield _histogram(
            "stepvad_alert_latency_seconds",
            "From the arrival of a frame to the event that it starts.",
            ((camera.name, camera.alerts) for camera in now.cameras),
        )
        dropped = Counter(
            "stepvad_background_tasks_dropped",
            "Recordings, explanations and other background tasks dropped because of overload.",
            labels=["kind"],
        )
        for kind, n in now.dropped_tasks.items():
            dropped.add_metric([kind], n)
        yield dropped


def render(status: LiveStatus, version: str, health: Health = HEALTHY) -> bytes:
    """The metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(SiteMetrics(status, version, health))
    return generate_latest(registry)


def _families(
    measured: Iterable[Measured], label: str, things: Iterable[Any]
) -> Iterator[Counter | Gauge]:
    """Each metric for all cameras, sinks or stages that have a value."""
    for kind, name, words, value in measured:
        family = kind(f"stepvad_{name}", words, labels=[label])
        for one in things:
            if (now := value(one)) is not None:
                family.add_metric([one.name], now)
        yield family


def _histogram(name: str, words: str, delays: Iterable[tuple[str, Delays]]) -> Metric:
    family = HistogramMetricFamily(name, words, labels=["camera"])
    # Prometheus counts cumulatively: a bucket has all delays up to its end
    ends = [*(f"{end:g}" for end in BUCKETS_S), "+Inf"]
    for camera, some in delays:
        counts = zip(ends, map(float, accumulate(some.counts)), strict=True)
        family.add_metric([camera], buckets=[*counts], sum_value=some.total_s)
    return family
