"""Two weeks of a site that learns, in compressed time: alerts of its budget, events found.

    python -m studies site-weeks --seed 0

Needs the mocap archive (see the study `make-mocap`). Two sites see the same footage: the alerts of
one are never judged, those of the other every evening, by the truth. A day is some minutes of
people at each of two cameras, which are watched all day, and the budget is one alert a day of a
camera. The learning, the ledgers, the limits, the marks and the event rules are the product's own,
fed with files and a simulated clock.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import numpy as np

from stepvad.errors import DataError
from stepvad.events.record import Record, event_id
from stepvad.events.rules import Event, find_events
from stepvad.formats import tracks, write_clip
from stepvad.poses import Clip
from stepvad.site.learning import rounds
from stepvad.site.learning.learner import Situation, is_due
from stepvad.site.learning.ledgers import (
    JudgedEvents,
    RecordingScorer,
    by_clock,
    since,
    with_limits,
)
from stepvad.site.learning.rounds import RecordingIndex
from stepvad.site.learning.versions import Versions
from stepvad.site.marks import MarkFollower
from stepvad.site.models import Models
from stepvad.site.recorder import RECORDINGS, Recording
from stepvad.site.settings.sections import CameraSettings, LearningMethod, SiteSettings
from stepvad.site.store.events import FILE_NAME, Store
from studies.figures import markdown
from studies.mocap import motions, takes
from studies.mocap.catalogue import MotionKind
from studies.mocap.dataset import camera_of
from studies.mocap.scenes import make_scene
from studies.mocap.takes import TakeSplit
from studies.simulated.footage import rolled

Operator = Literal["never judges", "judges every evening"]

CAMERAS = ("yard", "hall")
CLIP_S = 60.0
MONDAY = 1_789_948_800.0
"""Midnight of a Monday, UTC; the process runs with TZ=UTC."""
DAY_S, HOUR_S = 86400.0, 3600.0
DRIFT_DAY = 7
"""From the second week on the yard's camera is turned by 15 degrees."""
NEAR_S = 3.0
"""An alert within this of a true event has found it."""


@dataclass(frozen=True, slots=True, eq=False)
class Minute:
    """A minute of one camera, and the true event in it, in seconds of the minute."""

    camera: str
    day: int
    begin: float
    clip: Clip
    truth: tuple[float, float] | None
    kind: str = ""


@dataclass(slots=True)
class Day:
    """What happened on one day, at both cameras."""

    false: int = 0
    true: int = 0
    found: int = 0
    fits: int = 0
    limits: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A true event: whether it was found, and how high it peaked beside the limit."""

    day: int
    camera: str
    kind: str
    seconds: float
    found: bool
    highest: float
    limit: float


def minutes_of(seed: int, days: int, per_day: int, n_events: int) -> Iterator[Minute]:
    """The footage of a site, in order: by day from 8:00 on, a sixth of it at night from 23:00."""
    archive = motions.open_archive(None)
    cast = takes.split_takes(archive, "a", abnormal=True)
    chosen = _events(seed, days, per_day, n_events, cast)
    for day in range(days):
        for number in range(per_day):
            for place, camera in enumerate(CAMERAS):
                rng = np.random.default_rng([seed, day, number, place])
                at_night = number >= per_day - per_day // 6
                hour = 23.0 + 0.01 * number if at_night else 8.0 + 14.0 * number / per_day
                begin = MONDAY + day * DAY_S + 3600 * hour
                kind = chosen.get((day, number, place))
                yield _minute(rng, seed, camera, day, begin, cast, kind)


def _minute(
    rng: np.random.Generator,
    seed: int,
    camera: str,
    day: int,
    begin: float,
    cast: TakeSplit,
    kind: MotionKind | None,
) -> Minute:
    view = camera_of(seed, CAMERAS.index(camera))
    for _ in range(5):
        kinds = () if kind is None else (kind,)
        scene = make_scene(rng, view, cast, kinds, name="minute", seconds=CLIP_S)
        abnormal = np.flatnonzero(scene.classes != "")
        if kind is None or len(abnormal):
            break
    clip = scene.clip
    if camera == "yard" and day >= DRIFT_DAY:
        clip = rolled(clip)
    truth = None
    if len(abnormal):
        fps = scene.clip.rate()
        truth = float(abnormal[0] / fps), float(abnormal[-1] / fps)
    return Minute(camera, day, begin, clip, truth, kind or "")


def _events(
    seed: int, days: int, per_day: int, n: int, cast: TakeSplit
) -> dict[tuple[int, int, int], MotionKind]:
    """Where the true events are: spread over the days after the first hour, kinds in turn."""
    rng = np.random.default_rng([seed, 99])
    places = [
        (day, number, place)
        for day in range(days)
        for number in range(per_day // 2 if day == 0 else 0, per_day)
        for place in range(len(CAMERAS))
    ]
    step = len(places) / n
    picked = [places[int(k * step + rng.uniform(0, step))] for k in range(n)]
    kinds = list(cast.abnormal)
    return {at: kinds[k % len(kinds)] for k, at in enumerate(picked)}


class SimulatedSite:
    """A site that learns as `stepvad watch` does, fed minute by minute."""

    def __init__(
        self, data: Path, operator: Operator, rates: Sequence[float], method: LearningMethod
    ) -> None:
        self._operator: Operator = operator
        cameras = [
            CameraSettings(name=name, url="demo:", rate=rate)
            for name, rate in zip(CAMERAS, rates, strict=True)
        ]
        plain = SiteSettings(name="weeks", data=data, cameras=cameras)
        learning = plain.learning.model_copy(update={"method": method})
        self.settings = plain.model_copy(update={"learning": learning})
        self.data, self.now = data, MONDAY
        clock = {"clock": lambda: self.now, "monotonic": lambda: self.now}
        self.store = Store(data / FILE_NAME, **clock)
        self.index = RecordingIndex(data / RECORDINGS)
        self.versions = Versions(data)
        self.days: list[Day] = []
        self.outcomes: list[Outcome] = []
        self._judge: list[tuple[str, bool]] = []
        self._watched = MONDAY
        self._load()

    def _load(self) -> None:
        """Load the current model, as after a restart of the site."""
        self.models = Models()
        self.follower = MarkFollower(self.settings, self.store, self.models, deque())
        if self.versions.current is not None:
            self.models.load(self.versions.model)
            self.follower.follow()

    def watch(self, minute: Minute) -> None:
        """Score a minute, note its alerts, record its poses, and learn if that is due."""
        while len(self.days) <= minute.day:
            self.now = MONDAY + len(self.days) * DAY_S + 3 * HOUR_S
            self._evening()
            self._learn()
            self.days.append(Day())
        self.now = minute.begin + CLIP_S
        self._note_watched()
        if self.versions.current is not None:
            self._score(minute)
        recording = self._record(minute)
        if self.versions.current is not None:
            self._count(recording)
        self._learn()

    def _note_watched(self) -> None:
        """Both cameras are watched all day."""
        hours = np.arange(self._watched // HOUR_S, self.now // HOUR_S + 1)
        begin = np.maximum(hours * HOUR_S, self._watched)
        seconds = np.minimum((hours + 1) * HOUR_S, self.now) - begin
        rows = zip(hours.astype(int).tolist(), seconds.tolist(), strict=True)
        self.store.add_watched({(name, hour): s for hour, s in rows for name in CAMERAS})
        self._watched = self.now

    def _score(self, minute: Minute) -> None:
        today = self.days[-1]
        model = self.models.load(self.versions.model)
        camera = self.settings.camera(minute.camera)
        scores = model.detector.score(minute.clip)
        limit, found = np.nan, list[Event]()
        if not model.no_limit(camera):
            rules = model.rules_of(camera)
            limit = today.limits[minute.camera] = rules.threshold
            found = find_events(minute.clip, scores, rules)
        hits = [is_near(event, minute.truth) for event in found]
        today.false += len(hits) - sum(hits)
        if minute.truth is not None:
            today.true += 1
            today.found += any(hits)
            first, last = minute.truth
            at = scores.windows.frame / minute.clip.rate()
            near = scores.A[(at >= first - 1.0) & (at <= last + 1.0)]
            highest = float(near.max()) if len(near) else np.nan
            self.outcomes.append(
                Outcome(
                    minute.day, minute.camera, minute.kind, last - first, any(hits), highest, limit
                )
            )
        for event, hit in zip(found, hits, strict=True):
            self._keep(event, minute, model.sha256, limit, hit)

    def _keep(self, event: Event, at: Minute, sha256: str, threshold: float, hit: bool) -> None:
        """Store an alert with its poses; the operator judges it in the evening."""
        first = round(event.first_s * at.clip.rate())
        record = Record(
            id=event_id(at.camera, int(at.begin), event.tracks[0], first),
            camera=at.camera,
            score=event.peak,
            top_score=event.peak,
            start_time=at.begin + event.first_s,
            model_id="learned",
            model_sha256=sha256,
            track_id=event.peak_track,
            tracks=event.tracks,
            epoch=int(at.begin),
            frame_seq=first,
            confidence=1.0,
            threshold=threshold,
        )
        self.store.change("new", record)
        self.store.change("end", record.ended("calm", at.begin + event.last_s))
        self.store.put_poses(record.id, tracks.to_bytes(around(at.clip, event)))
        self._judge.append((record.id, hit))

    def _evening(self) -> None:
        """The operator judges the alerts of the day."""
        if self._operator == "judges every evening" and self._judge:
            for id, hit in self._judge:
                self.store.mark(id, "right" if hit else "normal", self.now, "rule")
            self.follower.follow()
        self._judge = []

    def _record(self, minute: Minute) -> Recording:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(minute.begin))
        directory = self.data / RECORDINGS / minute.camera
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{minute.camera}-{stamp}-000.parquet"
        write_clip(replace(minute.clip, name=path.stem), path)
        return Recording(path, minute.camera, minute.begin)

    def _count(self, recording: Recording) -> None:
        """Add a recording to the ledger of its camera, as a running site does."""
        model = self.models.load(self.versions.model)
        if model.learned is None or model.calibration is None:
            return
        judged = JudgedEvents.from_store(self.store, since(self.now))
        scorer = RecordingScorer(model.detector, model.learned, judged, self.settings)
        own = {recording.camera: [scorer.score(recording)]}
        watched = self.store.watched(since(self.now))
        ledgers = {
            camera: by_clock([*known, *own.get(camera, ())], watched.get(camera, {}), self.now)
            for camera, known in model.calibration.ledgers.items()
        }
        after = with_limits(model.calibration, ledgers, self.settings.learning)
        self.models.calibrated(model.path, after)

    def _learn(self) -> None:
        """Fit a model if that is due."""
        self._forget()
        self.index.update(CAMERAS, 10**6)
        current, amounts = self.versions.current, self.index.by_camera()
        situation = Situation(
            now=self.now,
            amounts=amounts,
            new=self.index.total(current.until if current else 0.0),
            since=MONDAY,
            current=current,
        )
        if not is_due(situation, self.settings.learning.hours):
            return
        try:
            rounds.fit(self.settings, now=self.now)
        except DataError as error:  # a site says so, and tries again
            print(f"day {len(self.days)}: {error.problem}", flush=True)
            return
        self._load()
        if self.days:
            self.days[-1].fits += 1

    def _forget(self) -> None:
        """Delete poses that are older than the site keeps them."""
        oldest = self.now - self.settings.retention.poses_days * DAY_S
        for path in (self.data / RECORDINGS).glob("*/*.parquet"):
            one = Recording.from_path(path)
            if one is not None and one.begin < oldest:
                path.unlink()


def around(clip: Clip, event: Event) -> Clip:
    """The poses of an event's people, from four seconds before it on."""
    rate = clip.rate()
    first, last = round((event.first_s - 4) * rate), round(event.last_s * rate) + 1
    tracks = (track.between(first, last) for track in clip.tracks if track.id in event.tracks)
    return replace(clip, tracks=tuple(track for track in tracks if len(track)))


def is_near(event: Event, truth: tuple[float, float] | None) -> bool:
    """Whether an alert is about a true event."""
    if truth is None:
        return False
    return event.first_s <= truth[1] + NEAR_S and event.last_s >= truth[0] - NEAR_S


SITES: dict[str, Operator] = {
    "learns": "never judges",
    "learns, alerts judged": "judges every evening",
}
COLUMNS = ("site", "day 1", "days 2 to 7", "days 8 to 14", "all days", "alerts", "found")
FOOTAGE: list[Minute] = []


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--minutes", type=int, default=10, help="of people, a day and camera")
    parser.add_argument("--events", type=int, default=20)
    parser.add_argument("--site", choices=[*SITES], action="append", help="only these")
    parser.add_argument("--method", choices=("usual", "step"), default="usual")
    parser.add_argument("--workers", type=int, default=2, help="sites simulated at a time")
    given = parser.parse_args(arguments)
    os.environ["TZ"] = "UTC"
    time.tzset()
    footage = [*minutes_of(given.seed, given.days, given.minutes, given.events)]
    hours = sum(one.clip.n_frames / one.clip.rate() for one in footage) / HOUR_S
    n_true = sum(one.truth is not None for one in footage)
    print(f"{hours:.1f} hours of people, true events: {n_true}, seed {given.seed}", flush=True)
    names = [*(given.site or SITES)]
    FOOTAGE[:] = footage  # forked processes share it
    rows = []
    with ProcessPoolExecutor(given.workers, mp_context=get_context("fork")) as pool:
        lives = pool.map(partial(live, method=given.method), names)
        for name, (days, outcomes) in zip(names, lives, strict=True):
            rows.append(row(name, days))
            for day in days:
                print(name, day, flush=True)
            for one in outcomes:
                print(name, one, flush=True)
    print("\nfalse alerts a day of a camera; the budget is 1\n")
    print(markdown(COLUMNS, rows, words=(0,)))


def live(name: str, method: LearningMethod) -> tuple[list[Day], list[Outcome]]:
    """Two weeks of one site."""
    rates = [next(one.clip.rate() for one in FOOTAGE if one.camera == name) for name in CAMERAS]
    with tempfile.TemporaryDirectory(prefix="weeks-") as data:
        site = SimulatedSite(Path(data), SITES[name], rates, method)
        for minute in FOOTAGE:
            site.watch(minute)
        site.store.close()
    return site.days, site.outcomes


def row(name: str, days: Sequence[Day]) -> tuple[str, ...]:
    """One row of the table."""

    def false(some: Sequence[Day]) -> str:
        n = sum(day.false for day in some)
        return f"{n / len(some) / len(CAMERAS):.2f}" if some else "-"

    found, true = sum(day.found for day in days), sum(day.true for day in days)
    spans = days[:1], days[1:DRIFT_DAY], days[DRIFT_DAY:], days
    alerts = (sum(day.false for day in days) + found) / len(days) / len(CAMERAS)
    return name, *map(false, spans), f"{alerts:.2f}", f"{found} of {true}"
