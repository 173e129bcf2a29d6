"""What is wrong with a site now: found every second, shown on the page and told to people."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from stepvad.site.status import CameraView, LiveStatus, SinkView, Trouble
from stepvad.site.store.events import Store

logger = logging.getLogger(__name__)
STORE_S, OFFLINE_S, UNWATCHED_S, SINK_S = 5.0, 30.0, 60.0, 300.0
"""How long each trouble lasts before it is one."""
START_S = 180.0
"""Time in which a camera may connect for the first time: networks may be downloaded."""
SPAN_S = 600.0
"""A camera that was unwatched for `UNWATCHED_S` of this time is in trouble however often it came
back."""
CALM_S = 60.0
"""Time without a trouble before it is over."""
FIRST_HOLD_S, LONGEST_HOLD_S, DAY_S = 300.0, 3600.0, 86400.0
"""A trouble of which people have heard in the last day has to last this long before they hear of
it again; the time doubles with each message."""
RESTART_S = 3600.0
"""People hear of restarts at most this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that is wrong right now."""

    key: str
    words: str
    detail: str = ""
    """The reason, and what helps."""
    over: str = ""
    """Words for its end; empty: its end is not told."""
    begins_s: float = 0.0
    """How long it has to last before it is a trouble."""
    camera: str = ""
    sink: str = ""
    """The sink that fails: it is not told of itself."""


@dataclass(frozen=True, slots=True)
class TroubleChange:
    """The beginning or end of a trouble, as people hear of it."""

    kind: Literal["begin", "end"]
    fault: Fault
    since: float
    """Unix time of its beginning."""
    lasted_s: float


@runtime_checkable
class TroubleListener(Protocol):
    """Hears of troubles; a sink may be one."""

    def trouble(self, change: TroubleChange) -> None:
        """Handle a change; must not block."""
        ...


@dataclass(slots=True)
class _Course:
    """The course of one fault from its beginning on, in monotonic time."""

    fault: Fault
    began: float
    since: float
    latest: float
    is_trouble: bool = False
    is_told: bool = False


class Troubles:
    """Tells the status and the listeners when a trouble begins and when it is over.

    A trouble that comes and goes stays one until it has been absent for `CALM_S`, and one that
    returns is told only if it lasts, so that a loose cable fills no inbox.
    """

    def __init__(
        self,
        status: LiveStatus,
        find: Callable[[], Iterable[Fault]],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.listeners: list[TroubleListener] = []
        self._status, self._find, self._clock, self._wall = status, find, clock, wall
        self._courses: dict[str, _Course] = {}
        self._told: dict[str, list[float]] = {}
        """When people heard of each trouble in the last day."""

    def forget(self, listener: object) -> None:
        """Tell a listener nothing more, if it is one."""
        self.listeners = [one for one in self.listeners if one is not listener]

    def look(self) -> None:
        """Find what is wrong now, and tell what has begun or ended; call it every second."""
        now = self._clock()
        for fault in self._find():
            since = self._wall()
            course = self._courses.setdefault(fault.key, _Course(fault, now, since, now))
            course.fault, course.latest = fault, now
        for course in [*self._courses.values()]:
            if course.latest == now:
                self._goes_on(course, now)
            elif not course.is_trouble or now - course.latest >= CALM_S:
                del self._courses[course.fault.key]
                self._is_over(course)
        shown = [one for one in self._courses.values() if one.is_trouble]
        self._status.troubles(
            [Trouble(one.fault.key, _line(one.fault), one.since) for one in shown]
        )

    def _goes_on(self, course: _Course, now: float) -> None:
        lasted_s = now - course.began
        if lasted_s < course.fault.begins_s and not course.is_trouble:
            return
        if not course.is_trouble:
            course.is_trouble = True
            logger.warning("%s", _line(course.fault))
        # one that came before has to last: 0, 5, 10, 20, 40 and then 60 minutes
        told = [at for at in self._told.get(course.fault.key, []) if now - at < DAY_S]
        hold_s = min(FIRST_HOLD_S * 2 ** (len(told) - 1), LONGEST_HOLD_S) if told else 0.0
        if not course.is_told and lasted_s >= hold_s:
            course.is_told = True
            self._told[course.fault.key] = [*told, now]
            self._tell(TroubleChange("begin", course.fault, course.since, lasted_s))

    def _is_over(self, course: _Course) -> None:
        if course.is_trouble and course.fault.over:
            logger.info("%s", course.fault.over)
        if course.is_told and course.fault.over:
            lasted_s = course.latest - course.began
            self._tell(TroubleChange("end", course.fault, course.since, lasted_s))

    def _tell(self, change: TroubleChange) -> None:
        for listener in self.listeners:
            listener.trouble(change)


def _line(fault: Fault) -> str:
    return f"{fault.words}: {fault.detail}" if fault.detail else fault.words


@dataclass(slots=True, eq=False)
class SiteFaults:
    """Finds the faults of a site."""

    store: Store
    status: LiveStatus
    unusable: str = ""
    """Why the learned model cannot be used."""
    unscored: Mapping[str, str] = field(default_factory=dict)
    """Cameras whose model does not load, and why."""
    has_failed: bool = False
    """True if the site's last run did not end in order."""
    _unwatched: dict[str, deque[tuple[float, float]]] = field(init=False, default_factory=dict)
    """When each camera was not watched in the last minutes: moments, and seconds before them."""
    _looked: float = field(init=False, default=0.0)

    def find(self) -> Iterator[Fault]:
        """Yield what is wrong now."""
        now = self.status.snapshot()
        if self.has_failed and now.uptime_s < SPAN_S:
            yield Fault(
                key="restart",
                words="restarted after a failure",
                detail="it watches again; nobody was watched meanwhile",
            )
        if self.store.trouble:
            yield Fault(
                key="store",
                words="events cannot be stored",
                detail=self.store.trouble,
                over="events are stored again",
                begins_s=STORE_S,
            )
        if self.unusable:
            yield Fault(key="model", words="the model cannot be used", detail=self.unusable)
        for name, why in self.unscored.items():
            words = f"nobody is judged at camera {name}"
            yield Fault(key=f"model {name}", words=words, detail=why, camera=name)
        for camera in now.cameras:
            yield from self._of_camera(camera, now.uptime_s)
        self._looked = now.uptime_s
        for sink in now.sinks:
            yield from _of_sink(sink)

    def _of_camera(self, camera: CameraView, now: float) -> Iterator[Fault]:
        """The fault of a camera that is not watched now, with how often that was so."""
        is_lost = camera.state != "online" and (camera.since is not None or now > START_S)
        spans = self._unwatched.setdefault(camera.name, deque())
        while spans and spans[0][0] < now - SPAN_S:
            spans.popleft()
        if not is_lost and camera.load.state != "not watching":
            return
        spans.append((now, now - self._looked))
        begins_s = OFFLINE_S if is_lost else UNWATCHED_S
        if sum(seconds for _, seconds in spans) >= UNWATCHED_S:
            begins_s = 0.0
        state = "has failed" if camera.state == "failed" else "is offline"
        yield Fault(
            key=f"camera {camera.name}",
            words=f"camera {camera.name} {state if is_lost else 'is not watched'}",
            detail=camera.reason if is_lost else camera.load.advice.removeprefix("not watching: "),
            over=f"camera {camera.name} is watched again",
            begins_s=begins_s,
            camera=camera.name,
        )


def _of_sink(sink: SinkView) -> Iterator[Fault]:
    if sink.last_error and sink.name != "store":
        yield Fault(
            key=f"sink {sink.name}",
            words=f"{sink.name} gets no events",
            detail=sink.last_error,
            over=f"{sink.name} gets events again",
            begins_s=SINK_S,
            sink=sink.name,
        )


class RunMarker:
    """A file that exists while a site runs: one that is found was left by a run that failed."""

    def __init__(self, path: Path, wall: Callable[[], float] = time.time) -> None:
        self._path, self._wall = path, wall

    def begin(self) -> bool:
        """Note that the site runs; True if the last run failed and people are to hear of it."""
        now, told = self._wall(), None
        # the file says when people last heard of a restart: a site that fails all the time
        # is told once an hour
        with suppress(OSError, ValueError):
            told = float(self._path.read_text()[:32] or 0)
        is_news = told is not None and not 0 <= now - told < RESTART_S
        with suppress(OSError):  # a broken disk keeps no site from watching
            self._path.write_text(f"{now if is_news else told or 0:.0f}")
        return is_news

    def end(self) -> None:
        """Note that the run ended in order."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
