"""The live status as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from stepvad.intake.delays import BUCKETS_S, Delays
from stepvad.intake.status import CameraView, Field, LiveStatus, Snapshot
from stepvad.supervision.stages import Health

HEALTHY = Health()

COUNTED: dict[Field, tuple[str, str]] = {
    "frames_in": ("stepvad_frames_in", "Frames that arrived."),
    "scored": ("stepvad_frames_scored", "Frames that were scored."),
    "shed": ("stepvad_frames_shed", "Frames dropped because of overload."),
    "skipped": ("stepvad_frames_skipped", "Frames skipped to keep the rate of the settings."),
    "windows": ("stepvad_windows", "Windows that were scored."),
    "flat_windows": ("stepvad_windows_flat", "Windows without any motion."),
    "muted_windows": ("stepvad_windows_muted", "Windows of mostly interpolated poses."),
    "events": ("stepvad_events", "Events that started."),
    "restarts": ("stepvad_restarts", "Processes that were restarted."),
    "reconnects": ("stepvad_reconnects", "Times that the camera was reconnected."),
}


class SiteMetrics(Collector):
    """Collects metrics from the live status on every scrape; keeps no counters of its own."""

    def __init__(self, status: LiveStatus, version: str, health: Health) -> None:
        self.status, self.version, self.health = status, version, health

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        now = self.status.snapshot()
        yield InfoMetricFamily("stepvad", "The running version.", value={"version": self.version})
        yield GaugeMetricFamily(
            "stepvad_uptime_seconds", "Time since the start.", value=now.uptime_s
        )
        yield from _counters(now)
        yield from _gauges(now)
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
        yield from _sinks(now)
        yield _dropped_tasks(now)
        yield from _stages(self.health)


def render(status: LiveStatus, version: str, health: Health = HEALTHY) -> bytes:
    """The metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(SiteMetrics(status, version, health))
    return generate_latest(registry)


def _counters(now: Snapshot) -> Iterator[Metric]:
    for field, (name, words) in COUNTED.items():
        family = CounterMetricFamily(name, words, labels=["camera"])
        for camera in now.cameras:
            family.add_metric([camera.name], camera.counts[field])
        yield family


def _gauges(now: Snapshot) -> Iterator[Metric]:
    def gauge(name: str, words: str, values: Iterable[tuple[CameraView, float]]) -> Metric:
        family = GaugeMetricFamily(name, words, labels=["camera"])
        for camera, value in values:
            family.add_metric([camera.name], value)
        return family

    cameras = now.cameras
    yield gauge(
        "stepvad_camera_up",
        "Whether a camera is online.",
        ((camera, float(camera.state == "online")) for camera in cameras),
    )
    yield gauge(
        "stepvad_camera_failed",
        "Whether a camera has failed.",
        ((camera, float(camera.state == "failed")) for camera in cameras),
    )
    yield gauge(
        "stepvad_camera_fps",
        "Frames a second that are scored.",
        ((camera, camera.fps or 0.0) for camera in cameras),
    )
    yield gauge(
        "stepvad_camera_drifted",
        "Whether a camera no longer looks as it did in calibration.",
        ((camera, float(camera.drifted)) for camera in cameras),
    )
    yield gauge(
        "stepvad_camera_left_out_ratio",
        "Share of the frames of the last 10 s that were left out.",
        ((camera, camera.load.left_out) for camera in cameras),
    )
    yield gauge(
        "stepvad_people",
        "People in the latest frame.",
        ((camera, float(camera.people)) for camera in cameras),
    )
    yield gauge(
        "stepvad_threshold",
        "Score above which a person raises an event.",
        ((camera, camera.threshold) for camera in cameras if camera.threshold is not None),
    )


def _histogram(name: str, words: str, delays: Iterable[tuple[str, Delays]]) -> Metric:
    family = HistogramMetricFamily(name, words, labels=["camera"])
    ends = [*(f"{end:g}" for end in BUCKETS_S), "+Inf"]
    for camera, some in delays:
        counts = zip(ends, map(float, accumulate(some.counts)), strict=True)
        family.add_metric([camera], buckets=[*counts], sum_value=some.total_s)
    return family


def _sinks(now: Snapshot) -> Iterator[Metric]:
    lag = GaugeMetricFamily("stepvad_sink_lag", "Messages waiting for a sink.", labels=["sink"])
    failures = CounterMetricFamily(
        "stepvad_sink_failures", "Failed attempts to deliver a message to a sink.", labels=["sink"]
    )
    refused = CounterMetricFamily(
        "stepvad_sink_refused", "Messages that became dead letters.", labels=["sink"]
    )
    for sink in now.sinks:
        lag.add_metric([sink.name], sink.lag)
        failures.add_metric([sink.name], sink.failures)
        refused.add_metric([sink.name], sink.refused)
    yield lag
    yield failures
    yield refused


def _dropped_tasks(now: Snapshot) -> Metric:
    dropped = CounterMetricFamily(
        "stepvad_background_tasks_dropped",
        "Recordings, explanations and other background tasks dropped because of overload.",
        labels=["kind"],
    )
    for kind, n in now.dropped_tasks.items():
        dropped.add_metric([kind], n)
    return dropped


def _stages(health: Health) -> Iterator[Metric]:
    age = GaugeMetricFamily(
        "stepvad_stage_heartbeat_age_seconds",
        "Time since a stage last made progress.",
        labels=["stage"],
    )
    deadline = GaugeMetricFamily(
        "stepvad_stage_heartbeat_deadline_seconds",
        "Heartbeat age at which a stage counts as hanging.",
        labels=["stage"],
    )
    for stage in health.stages:
        age.add_metric([stage.name], stage.age_s)
        deadline.add_metric([stage.name], stage.deadline_s)
    yield age
    yield deadline
