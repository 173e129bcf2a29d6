"""Two weeks of a site that learns, in compressed time: false alerts, found events, promises.

    python -m studies site-weeks --seed 0

Needs the mocap archive (see the study `make-mocap`). Three sites see the same footage:
one that stays with its first model, one that learns, and one that learns and whose operator judges
every alert in the evening by the truth. A day is half an hour of people at each of two cameras, and
the site is asked for at most one false alert a day of a camera, which is two an hour of footage.
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

from stepvad.detector import Detector
from stepvad.events.record import Record, event_id
from stepvad.events.rules import Event, find_events
from stepvad.events.threshold import upper_bound
from stepvad.formats import tracks, write_clip
from stepvad.poses import Clip
from stepvad.site.learning import rounds
from stepvad.site.learning.learner import Situation, due_round
from stepvad.site.learning.rounds import RecordingIndex
from stepvad.site.learning.versions import Versions
from stepvad.site.marks import MarkFollower
from stepvad.site.models import Models
from stepvad.site.recorder import RECORDINGS
from stepvad.site.settings.sections import CameraSettings, SiteSettings
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
RATE = 15.0
CLIP_S = 60.0
MONDAY = 1_789_948_800.0
"""Midnight of a Monday, UTC; the process runs with TZ=UTC."""
DAY_S = 86400.0
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

    hours: float = 0.0
    false: int = 0
    true: int = 0
    found: int = 0
    fits: int = 0
    threshold: float = float("nan")
    promise: str = ""


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


@dataclass(slots=True, eq=False)
class SimulatedSite:
    """A site that learns as `stepvad watch` does, fed minute by minute."""

    data: Path
    operator: Operator
    alerts_per_day: float
    learns: bool = True
    """If not, it stays with its first model and threshold."""
    days: list[Day] = field(default_factory=list)

    def __post_init__(self) -> None:
        cameras = [CameraSettings(name=name, url="demo:", rate=RATE) for name in CAMERAS]
        plain = SiteSettings(name="weeks", data=self.data, cameras=cameras)
        promised = plain.learning.model_copy(update={"alerts_per_day": self.alerts_per_day})
        learning = plain.model_copy(update={"learning": promised})
        self.settings = learning
        self.store = Store(self.data / FILE_NAME)
        self.index = RecordingIndex(self.data / RECORDINGS)
        self.versions = Versions(self.data)
        self._judge: list[tuple[str, bool]] = []
        self._load()

    settings: SiteSettings = field(init=False)
    store: Store = field(init=False)
    index: RecordingIndex = field(init=False)
    versions: Versions = field(init=False)
    models: Models = field(init=False)
    follower: MarkFollower = field(init=False)
    _judge: list[tuple[str, bool]] = field(init=False)
    _detector: Detector | None = field(init=False, default=None)

    def _load(self) -> None:
        """Load the current model, as after a restart of the site."""
        self.models = Models()
        self.follower = MarkFollower(self.settings, self.store, self.models, deque())
        if self.versions.current is not None:
            self._detector = self.models.load(self.versions.model).detector
            self.follower.follow()

    def watch(self, minute: Minute) -> None:
        """Score a minute, note its alerts, record its poses, and learn if that is due."""
        while len(self.days) <= minute.day:
            self._evening()
            self._learn(MONDAY + len(self.days) * DAY_S + 3 * 3600)
            self.days.append(Day())
        today = self.days[-1]
        if self._detector is not None:
            self._score(self._detector, minute, today)
        self._record(minute)
        self._learn(minute.begin + CLIP_S)

    def _score(self, detector: Detector, minute: Minute, today: Day) -> None:
        model = self.models.load(self.versions.model)
        rules = model.rules(minute.camera, None)
        today.hours += minute.clip.n_frames / RATE / 3600
        today.threshold = rules.threshold
        learned = self.versions.current
        today.promise = learned.words if learned is not None else ""
        found = find_events(minute.clip, detector.score(minute.clip), rules)
        hits = [is_near(event, minute.truth) for event in found]
        today.false += len(hits) - sum(hits)
        if minute.truth is not None:
            today.true += 1
            today.found += any(hits)
        for event, hit in zip(found, hits, strict=True):
            self._keep(event, minute, model.sha256, rules.threshold, hit)

    def _keep(self, event: Event, at: Minute, sha256: str, threshold: float, hit: bool) -> None:
        """Store an alert with its poses; the operator judges it in the evening."""
        first = round(event.first_s * RATE)
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
        if self.operator == "judges every evening":
            for id, hit in self._judge:
                self.store.mark(id, "right" if hit else "normal", time.time(), "rule")
            if self._judge:
                self.follower.follow()
        self._judge = []

    def _record(self, minute: Minute) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(minute.begin))
        directory = self.data / RECORDINGS / minute.camera
        directory.mkdir(parents=True, exist_ok=True)
        name = f"{minute.camera}-{stamp}-000"
        write_clip(replace(minute.clip, name=name), directory / f"{name}.parquet")

    def _learn(self, now: float) -> None:
        """Run the rounds that are due."""
        if not self.learns and self.versions.current is not None:
            return
        self._forget(now)
        self.index.update(10**6)
        current = self.versions.current
        situation = Situation(
            now=now,
            amount=self.index.amount(),
            files=len(self.index),
            new=self.index.amount(current.until if current else 0.0),
            unmeasured=self.index.amount(current.measured_until if current else 0.0),
            marks=len(self.store.marked()),
            current=current,
        )
        match due_round(situation, self.settings.learning.hours):
            case "fit":
                rounds.fit(self.settings, now=now)
                self._load()
                if self.days:
                    self.days[-1].fits += 1
            case "calibrate":
                rounds.calibrate(self.settings)
                self.follower.reload(self.versions.model)

    def _forget(self, now: float) -> None:
        """Delete poses that are older than the site keeps them."""
        oldest = now - self.settings.retention.poses_days * DAY_S
        for path in (self.data / RECORDINGS).glob("*/*.parquet"):
            seconds = path.stem.rsplit("-", 2)[1]
            if time.mktime(time.strptime(seconds, "%Y%m%dT%H%M%S")) < oldest:
                path.unlink()


def around(clip: Clip, event: Event) -> Clip:
    """The poses of an event's people, from four seconds before it on."""
    first, last = round((event.first_s - 4) * RATE), round(event.last_s * RATE) + 1
    tracks = (track.between(first, last) for track in clip.tracks if track.id in event.tracks)
    return replace(clip, tracks=tuple(track for track in tracks if len(track)))


def is_near(event: Event, truth: tuple[float, float] | None) -> bool:
    """Whether an alert is about a true event."""
    if truth is None:
        return False
    return event.first_s <= truth[1] + NEAR_S and event.last_s >= truth[0] - NEAR_S


def joined(days: Sequence[Day]) -> Day:
    """The sum of several days."""
    last = days[-1]
    return Day(
        hours=sum(day.hours for day in days),
        false=sum(day.false for day in days),
        true=sum(day.true for day in days),
        found=sum(day.found for day in days),
        fits=sum(day.fits for day in days),
        threshold=last.threshold,
        promise=last.promise,
    )


SITES: dict[str, tuple[Operator, bool]] = {
    "first model only": ("never judges", False),
    "learns": ("never judges", True),
    "learns, alerts judged": ("judges every evening", True),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--minutes", type=int, default=30, help="of people, a day and camera")
    parser.add_argument("--events", type=int, default=20)
    parser.add_argument("--site", choices=[*SITES], action="append", help="only these")
    parser.add_argument("--workers", type=int, default=2, help="sites simulated at a time")
    parser.add_argument("--width", type=int, default=256, help="of the network")
    given = parser.parse_args(arguments)
    plain = rounds.config_for
    rounds.config_for = lambda settings, poses: replace(plain(settings, poses), width=given.width)
    os.environ["TZ"] = "UTC"
    time.tzset()
    footage = [*minutes_of(given.seed, given.days, given.minutes, given.events)]
    hours = sum(one.clip.n_frames / one.clip.rate() for one in footage) / 3600
    n_true = sum(one.truth is not None for one in footage)
    print(f"{hours:.1f} camera-hours, true events: {n_true}, seed {given.seed}", flush=True)
    promised = 60 / given.minutes
    names = [*(given.site or SITES)]
    global FOOTAGE
    FOOTAGE = footage  # forked processes share it
    with ProcessPoolExecutor(given.workers, mp_context=get_context("fork")) as pool:
        for name, days in zip(
            names, pool.map(partial(live, promised=promised), names), strict=True
        ):
            spans = {"day 1": days[:1], "days 2 to 7": days[1:7]}
            spans["days 8 to 14 (yard turned)"] = days[7:]
            rows = [row(words, some, given.minutes) for words, some in spans.items() if some]
            print(f"\n{name}; promised: at most 1 false alert a day of a camera\n")
            print(markdown(COLUMNS, rows, words=(0,)))
            for number, day in enumerate(days, 1):
                print(number, day, flush=True)


FOOTAGE: list[Minute] = []


def live(name: str, promised: float) -> list[Day]:
    """Two weeks of one site."""
    operator, learns = SITES[name]
    with tempfile.TemporaryDirectory(prefix="weeks-") as data:
        site = SimulatedSite(Path(data), operator, 24 * promised, learns)
        for minute in FOOTAGE:
            site.watch(minute)
        site.store.close()
    return site.days


COLUMNS = ("time", "false alerts a day of a camera", "95 % above", "found", "fits", "threshold")


def row(words: str, days: list[Day], minutes: int) -> tuple[str, ...]:
    """One row of the table."""
    sum_ = joined(days)
    a_day = minutes / 60
    rate = sum_.false / sum_.hours * a_day if sum_.hours else float("nan")
    most = upper_bound(sum_.false) / sum_.hours * a_day if sum_.hours else float("nan")
    return (
        words,
        f"{rate:.2f}",
        f"{most:.2f}",
        f"{sum_.found} of {sum_.true}",
        f"{sum_.fits}",
        f"{sum_.threshold:.2f} ({sum_.promise.partition(':')[0].partition(',')[0]})",
    )
