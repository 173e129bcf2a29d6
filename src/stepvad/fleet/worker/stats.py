"""Counters of a worker, exported as Prometheus metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepvad.fleet.worker.scoring import ScoringStats, Work
from stepvad.site.stages import Heartbeat

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from stepvad.fleet.worker.owned_shard import OutgoingMessage

REASONS = ("shed", "duplicate", "missed", "late", "refused", "unreadable")
"""Why frames are not scored. A counter is there before it counts: `rate` misses a first jump."""
LATE_S = 1.0
"""A frame is late if the broker received it longer ago than this when it is scored."""
HUNG_S = 30.0
"""A worker without a round for this long hangs: /health says so, and its watchdog ends it."""
BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(slots=True)
class WorkerStats:
    """Counters since the worker started."""

    frames: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Frames not scored, by camera and reason."""
    late: Counter[str] = field(default_factory=Counter)
    """Frames scored late, by site; 0 for a site that never was."""
    messages: int = 0
    events: int = 0
    delays: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    """Histogram of event latency, from the broker's frame timestamp to the stored event."""
    delay_s: float = 0.0
    latest: float = 0.0
    """Broker timestamp of the latest frame scored."""
    led: Mapping[str, bool] = field(default_factory=dict)
    """Whether each stream had a leader at the last look."""
    heartbeat: Heartbeat = field(default_factory=lambda: Heartbeat(HUNG_S))
    """Beats with every round; rounds run several times a second even without frames."""

    def add(self, works: Sequence[Work], clock: float) -> None:
        """Count the works of a round, by the broker's clock; there may be none."""
        self.heartbeat.beat()
        self.messages += len(works)
        if works:
            self.latest = max(work.time for work in works)
            for work in works:
                is_late = 0 < work.time < clock - LATE_S
                self.late[work.camera.site] += len(work.batch) if is_late else 0

    def event(self, message: OutgoingMessage, clock: float) -> None:
        """Count a stored event."""
        self.events += 1
        if message.time:
            delay = max(clock - message.time, 0.0)
            self.delays[bisect_left(BUCKETS_S, delay)] += 1
            self.delay_s += delay


@dataclass(slots=True, eq=False)
class WorkerMetrics:
    """Prometheus collector that reads `WorkerStats` on each scrape."""

    stats: WorkerStats
    counts: ScoringStats
    shards: Callable[[], int]
    known: Callable[[], int]
    """All shards of the fleet."""
    waiting: Callable[[], int]
    unsaid: Callable[[], int]

    def _late(self) -> Counter[str]:
        """Late frames by site, with those that were shed for it."""
        found = Counter(self.stats.late)
        for (camera, reason), n in [*self.stats.frames.items()]:
            if reason == "shed":
                found[camera.partition("/")[0]] += n
        return found

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        yield from self._totals()
        yield self._left_out()
        yield self._late_frames()
        yield from self._levels()
        yield self._leaders()
        yield self._delays()

    def _totals(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        stats, counts = self.stats, self.counts
        for name, words, value in (
            ("frames_scored", "Frames that were scored.", counts.frames),
            ("frames_failed", "Frames that could not be scored.", counts.failed),
            ("windows", "Windows that were scored.", counts.windows),
            ("windows_flat", "Windows without any motion.", counts.flat_windows),
            ("windows_muted", "Windows of mostly interpolated poses.", counts.muted_windows),
            ("messages", "Messages with frames.", stats.messages),
            ("events", "Changes of events that are stored.", stats.events),
        ):
            yield CounterMetricFamily(f"stepvad_fleet_{name}", words, value=value)

    def _left_out(self) -> Metric:
        from prometheus_client.core import CounterMetricFamily

        made = CounterMetricFamily(
            "stepvad_fleet_frames_left_out",
            "Frames that were not scored, by reason.",
            labels=["reason"],
        )
        reasons = Counter(dict.fromkeys(REASONS, 0))
        for (_, reason), n in [*self.stats.frames.items()]:
            reasons[reason] += n
        for reason, n in reasons.items():
            made.add_metric([reason], n)
        return made

    def _late_frames(self) -> Metric:
        from prometheus_client.core import CounterMetricFamily

        made = CounterMetricFamily(
            "stepvad_fleet_frames_late",
            "Frames scored longer than a second after the broker received them, or shed, by site.",
            labels=["site"],
        )
        for site, n in self._late().items():
            made.add_metric([site], n)
        return made

    def _levels(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        for name, words, value in (
            ("shards", "Shards held.", self.shards()),
            ("shards_known", "Shards that somebody should hold.", self.known()),
            ("waiting", "Messages that wait in the worker.", self.waiting()),
            (
                "events_unsaid",
                "Changes of events that the broker did not store yet.",
                self.unsaid(),
            ),
        ):
            yield GaugeMetricFamily(f"stepvad_fleet_{name}", words, value=value)

    def _leaders(self) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        made = GaugeMetricFamily(
            "stepvad_fleet_stream_led",
            "1 if a stream has a leader, 0 if it has none or does not answer.",
            labels=["stream"],
        )
        for stream, is_led in self.stats.led.items():
            made.add_metric([stream], is_led)
        return made

    def _delays(self) -> Metric:
        from prometheus_client.core import HistogramMetricFamily

        made = HistogramMetricFamily(
            "stepvad_fleet_event_latency_seconds", "From the frame to the event that it changes."
        )
        total, buckets = 0, []
        for end, n in zip([*map(str, BUCKETS_S), "+Inf"], self.stats.delays, strict=True):
            total += n
            buckets.append((end, float(total)))
        made.add_metric([], buckets=buckets, sum_value=self.stats.delay_s)
        return made
