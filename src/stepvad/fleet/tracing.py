"""Traces of single messages through a fleet, by OpenTelemetry, which is not loaded while off."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from stepvad.errors import MissingExtraError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

TRACEPARENT = "traceparent"
"""Header with the trace of a message (W3C Trace Context); readers that do not trace ignore it."""
EXPORT_S = 5.0
"""Timeout of an export; spans that the collector does not take in time are dropped."""
MOST_S = 200
"""Most journeys of a process in a second: a site could ask for a trace of each of its messages."""


class Journey:
    """The way of one message through one process: a span, divided into stages without a gap."""

    __slots__ = ("_last", "_owner", "_span", "_stages", "is_over")

    def __init__(self, owner: Tracing, span: Span, at: float) -> None:
        self._owner, self._span, self._last = owner, span, at
        self._stages: list[tuple[str, float, float]] = []
        self.is_over = False

    def mark(self, stage: str) -> None:
        """A stage is over; it began when the one before ended."""
        now = max(time.time(), self._last)  # the clock may be set back, or differ from the broker's
        self._stages.append((stage, self._last, now))
        self._last = now

    def next(self, name: str) -> Journey:
        """What this message caused: a journey that begins now."""
        now = time.time()
        return Journey(self._owner, self._owner.child(name, self._span, now), now)

    @property
    def headers(self) -> dict[str, str]:
        """For a message that goes on with the trace."""
        return self._owner.headers(self._span)

    def end(self, outcome: str) -> None:
        """Hand the span and its stages to the exporter, the first time."""
        if self.is_over:
            return
        self.is_over = True
        for name, first, last in self._stages:
            self._owner.child(name, self._span, first).end(_ns(last))
        self._span.set_attribute("stepvad.outcome", outcome)
        self._span.end(_ns(self._last))


class Tracing:
    """Starts journeys and sends them to a collector, in a thread of its own."""

    def __init__(self, endpoint: str, ratio: float, role: str) -> None:
        """`ratio`: share of new traces; those of messages that are traced already go on."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
        except ImportError:
            raise MissingExtraError("trace.endpoint", "trace") from None
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_S)
        self._provider: TracerProvider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(ratio)),
            resource=Resource.create({"service.name": f"stepvad-{role}"}),
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer: Tracer = self._provider.get_tracer("stepvad")
        self._second, self._started_in_it = 0, 0

    def begin(self, name: str, at: float, **facts: str | int) -> Journey | None:
        """A new trace that began at a Unix time; None for most, by the ratio."""
        return self._started(name, None, at, facts)

    def go_on(
        self, name: str, headers: Mapping[str, str] | None, at: float, **facts: str | int
    ) -> Journey | None:
        """The trace of a message; None if it has none."""
        if not headers or TRACEPARENT not in headers:
            return None
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {TRACEPARENT: headers[TRACEPARENT]}
        parent = TraceContextTextMapPropagator().extract(carrier)
        return self._started(name, parent, at, facts) if parent else None

    def child(self, name: str, parent: Span, at: float) -> Span:
        """A span within another one."""
        from opentelemetry.trace import set_span_in_context

        return self._tracer.start_span(name, set_span_in_context(parent), start_time=_ns(at))

    def headers(self, span: Span) -> dict[str, str]:
        """The headers that name a span."""
        from opentelemetry.trace import set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        found: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(found, set_span_in_context(span))
        return {TRACEPARENT: found[TRACEPARENT]}

    def close(self) -> None:
        """Export what is left."""
        self._provider.shutdown()

    def _started(
        self, name: str, parent: Context | None, at: float, facts: Mapping[str, str | int]
    ) -> Journey | None:
        from opentelemetry.context import Context

        second = int(time.monotonic())
        if second != self._second:
            self._second, self._started_in_it = second, 0
        if self._started_in_it >= MOST_S:
            return None
        named = {f"stepvad.{key}": value for key, value in facts.items()}
        context = Context() if parent is None else parent  # not what this thread may be tracing
        span = self._tracer.start_span(name, context, attributes=named, start_time=_ns(at))
        self._started_in_it += span.is_recording()
        return Journey(self, span, at) if span.is_recording() else None


def opened(endpoint: str | None, ratio: float, role: str) -> Tracing | None:
    """Trace if an endpoint is set."""
    return None if endpoint is None else Tracing(endpoint, ratio, role)


def _ns(at: float) -> int:
    return round(at * 1e9)
