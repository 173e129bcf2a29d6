"""A site's link to its fleet: what it should run and marks come, its state and answers go."""

from __future__ import annotations

import logging
import queue
import random
import shutil
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Any, Literal, TypeVar
from uuid import uuid4

from nats.aio.msg import Msg  # noqa: TID253  # loaded by the fleet alone

from stepvad.codec import Count, Number, decode, encode
from stepvad.errors import ConfigError, DataError, ModelFileError, StepvadError
from stepvad.events.calibration import calibration_path
from stepvad.events.record import DAY_S, MarkMessage, Review, Search
from stepvad.files import hide_directories, read_state, write_state
from stepvad.fleet import registry, streams
from stepvad.fleet.connection import TIMEOUT_S, Connection, ConnectionThread, UnavailableError
from stepvad.fleet.outbox import EventMark, FleetSink, SiteStart
from stepvad.fleet.poses import PoseReader
from stepvad.fleet.registry import FalseAlerts, Rollout, Run, RunningRun, Status
from stepvad.site.accounts import FILE_NAME as ACCOUNTS
from stepvad.site.app import PageParts
from stepvad.site.checking import check_model
from stepvad.site.marks import mark_stored
from stepvad.site.models import Models
from stepvad.site.settings.file import MAX_BYTES, ROLLED_OUT, lay_over, parse, read_text
from stepvad.site.settings.sections import SiteFleet, SiteSettings
from stepvad.site.stages import FailureLog, Loop, Repeats, Stage
from stepvad.site.store.database import StoreError
from stepvad.video.models import model_file

logger = logging.getLogger(__name__)
T = TypeVar("T")
Ask = Callable[..., Any]  # Looks.ask

LOOK_S, SOON_S, MARKS_S = 60.0, 10.0, 5.0
"""Intervals of looks, of looks after one that failed, and of marks made at the site."""
CHECK_S = 180.0
"""Longest time to load a model."""
BEFORE_S = 7 * DAY_S
"""Time before a run whose false alerts are compared with those since."""
ASKS_A_SECOND, ASKS_KEPT, ASKS_S = 5, 10, 1.0
MOST_ANSWER = 900_000
"""Bytes of an answer; brokers take a megabyte by default."""
WORDS, MOST_TROUBLES = 300, 5
"""Characters of a text in a status, and troubles in it."""
MODEL, STATE = "model.safetensors", Path("fleet", "link.json")
FINAL = (ConfigError, DataError, ModelFileError, TOMLDecodeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledOut:
    """What the fleet has a site run; `site.settings.file` lays `lay` over its settings."""

    lay: dict[str, Any] = field(default_factory=dict)
    run: RunningRun = field(default_factory=RunningRun)
    since: Number = 0.0
    version: Literal[1] = 1


@dataclass(slots=True, kw_only=True)
class LinkState:
    """What the link knows across restarts."""

    began: Number
    revision: Count = 0
    at: Number = 0.0
    """Time at which the value of this revision was published."""
    told: dict[str, Number] = field(default_factory=dict)
    version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question of the centre."""

    what: Literal["explain", "poses", "look"]
    id: str = ""


class Link:
    """The connection of a site to its fleet; without a broker the site goes on with what it has."""

    def __init__(self, settings: SiteSettings, fleet: SiteFleet, path: Path) -> None:
        """`path`: the file of the settings, over which the fleet lays its own."""
        self.connection = ConnectionThread(fleet, settings.name)
        self.group, self.path = fleet.group, path
        self.sinks = (FleetSink(self.connection, site=settings.name),)
        self.poses = PoseReader(self.connection, site=settings.name)

    def stages(self, parts: PageParts, restart: Callable[[], None]) -> Sequence[Stage]:
        """The work of the link: one stage looks, another answers."""
        looks = Looks(self, parts, restart)
        return looks.stage, Answers(self.connection, parts, looks).stage

    def close(self) -> None:
        """Disconnect, after the last event."""
        self.connection.close()


class Looks:
    """Looks at the registry each minute, has the site run what it says, and tells how it is."""

    def __init__(self, link: Link, parts: PageParts, restart: Callable[[], None]) -> None:
        self._called, self._due, self._has_started = threading.Event(), 0.0, False
        self.stage = Loop("fleet-looks", self._step, CHECK_S, on_stop=self._called.set)
        self._connection, self._parts, self._group = link.connection, parts, link.group
        self._failures = FailureLog(logger)
        self._file = parts.settings.data / STATE
        self._state = LinkState(began=time.time())
        with suppress(StepvadError, OSError):  # marks are sent again, which changes nothing
            self._state = _read(LinkState, self._file) or self._state
        self._saved = b""
        self._rollouts = Rollouts(parts.settings, link.path, restart, self.ask)
        self._marks = Marks(parts, self._state.told, self.ask)

    def now(self) -> None:
        """Look at once; thread-safe."""
        self._due = 0.0
        self._called.set()

    def ask(self, work: Callable[[Connection], Awaitable[T]], within_s: float = TIMEOUT_S) -> T:
        """Do something with the brokers; raise `UnavailableError` if they are away."""
        self.stage.heartbeat.beat()
        return self._connection.ask(work, within_s, self.stage.stopping)

    def _step(self, loop: Loop) -> bool:
        self._called.wait(min(max(self._due - time.monotonic(), 0.0), MARKS_S))
        self._called.clear()
        work = [self._marks.send] if self._has_started else [self._tell_start, self._marks.send]
        if time.monotonic() >= self._due:
            # sites look one after another; and before the look: a call during it counts
            self._due = time.monotonic() + LOOK_S * random.uniform(0.8, 1.2)  # noqa: S311
            work += [self._follow, self._marks.take, self._tell]
        for act in work:
            if loop.stopping.is_set():
                break
            try:
                act()
            except Exception as error:  # whatever comes from the centre: the site goes on
                self._due = min(self._due, time.monotonic() + SOON_S)
                if not isinstance(error, UnavailableError):  # which the connection has logged
                    self._failures.log("fleet", error)
        state = encode(self._state)
        if state != self._saved:
            with suppress(StepvadError, OSError):  # a disk that fails: what is sent twice is known
                write_state(self._file, self._state)
                self._saved = state
        return False

    def _follow(self) -> None:
        """Run what the registry says, if that is new."""
        try:
            value, revision = self.ask(lambda broker: registry.read(broker, self._group))
        except DataError as error:
            self._rollouts.refused = error.problem
            return
        # a replica may be behind; a registry that was made anew counts from 1
        if revision and (revision >= self._state.revision or value.at > self._state.at):
            self._state.revision, self._state.at = revision, value.at
            self._rollouts.follow(value)

    def _tell_start(self) -> None:
        """Say once which events go on: what the site has told before and lost is over."""
        store, site = self._parts.store, self._parts.settings.name
        start = SiteStart(
            site=site,
            id=f"start-{uuid4().hex}",
            version=store.next_version(),
            start_time=time.time(),
            open=tuple(one.id for one in store.events(open=True, limit=None)),
        )
        self.ask(lambda broker: broker.publish(streams.events(site), encode(start)))
        self._has_started = True

    def _tell(self) -> None:
        """Say how the site is."""
        parts, rolled_out = self._parts, self._rollouts.current
        snapshot = parts.status.snapshot()
        online = [one for one in snapshot.cameras if one.state == "online"]
        blind = [one for one in online if one.threshold is None or one.load.state == "not watching"]
        budgets = [f"{one.name}: {one.limit}" for one in snapshot.cameras if one.limit]
        learning, refused = snapshot.learning, self._rollouts.refused
        status = Status(
            site=parts.settings.name,
            group=self._group,
            version=version("stepvad"),
            at=time.time(),
            revision=self._state.revision,
            run=rolled_out.run,
            refused=None if refused is None else hide_directories(refused)[:WORDS],
            cameras={
                "online": len(online),
                "offline": len(snapshot.cameras) - len(online),
                "unwatched": len(blind),
            },
            load={"left_out": max((one.load.left_out for one in online), default=0.0)},
            alerts=false_alerts(parts, rolled_out.since or self._state.began, self._state.began),
            budget=" ".join(budgets)[:WORDS],
            learning="" if learning is None else f"{learning.words} {learning.problem}"[:WORDS],
            troubles=tuple(one.words[:WORDS] for one in snapshot.troubles[:MOST_TROUBLES]),
        )
        subject = streams.status(parts.settings.name)
        self.ask(lambda broker: broker.publish(subject, encode(status)))


def false_alerts(parts: PageParts, since: float, began: float) -> FalseAlerts:
    """The alerts marked as normal since a run began, and in the days of this link before it."""
    now = time.time()
    kept = now - parts.settings.retention.events_days * DAY_S
    first = max(began, since - BEFORE_S, kept)
    try:
        marked = parts.store.events(since=first, limit=None, search=Search(review="normal"))
    except StoreError:  # the site has a disk that fails, which it says elsewhere
        return FalseAlerts()
    false = sum(one.start_time >= since for one in marked)
    return FalseAlerts(
        days=max(now - since, 0.0) / DAY_S,
        false=false,
        before_days=max(since - first, 0.0) / DAY_S,
        before_false=len(marked) - false,
    )


class Rollouts:
    """Downloads what a site should run, checks it, lays it over the settings, and restarts.

    What does not work is refused in words; the site goes on with what it has.
    """

    def __init__(
        self, settings: SiteSettings, path: Path, restart: Callable[[], None], ask: Ask
    ) -> None:
        self.refused: str | None = None
        self.current = RolledOut()
        self._site, self._path, self._ask, self._restart = settings.name, path, ask, restart
        self._file = settings.data / ROLLED_OUT
        self._left: str | None = None
        """The run that was refused, or that the site restarts with."""
        try:
            found = _read(RolledOut, self._file) or self.current
            lay_over(read_text(path, ""), path, found.lay)
            self.current = found
        except (StepvadError, OSError) as error:
            self.refused = str(error)

    def follow(self, value: Rollout) -> None:
        """Run what this value of the group says, if that is something else."""
        want = registry.wanted(value, self._site)
        digest = want.digest if want != Run() else ""
        if digest == self.current.run.digest:
            self.refused = self._left = None
        elif digest != self._left:
            self._remove_old(value)
            try:
                self._run(want, digest)
                self.refused, self._left = None, digest
            except (StepvadError, OSError, TOMLDecodeError) as error:
                if self.refused != str(error):
                    logger.warning("a roll-out is refused: %s", error)
                self.refused = str(error)
                # another try changes nothing, unless the network or the disk was at fault
                self._left = digest if isinstance(error, FINAL) else None

    def _run(self, run: Run, digest: str) -> None:
        lay = parse(run.settings)
        if "model" in lay:
            raise ConfigError("model: expected it as a file of the fleet, got it in the settings")
        if run.model is not None:
            lay["model"] = str(self._directory(run) / MODEL)
        settings = lay_over(read_text(self._path, ""), self._path, lay)
        self._download(run)
        models = Models()
        for camera in settings.cameras:
            if not settings.learns(camera):
                check_model(camera, models.load(settings.model_of(camera)))
        if "pose" in lay and any(camera.has_pictures for camera in settings.cameras):
            model_file(settings.pose.detector)
            model_file(settings.pose.pose)
        running = RunningRun(model=run.model.sha256 if run.model else None, digest=digest)
        write_state(self._file, RolledOut(lay=lay, run=running, since=time.time()))
        logger.info("the fleet has this site run %s; it restarts", digest or "its own settings")
        try:
            self._restart()
        except StepvadError:  # somebody broke the file meanwhile: as it was
            write_state(self._file, self.current)
            raise

    def _directory(self, run: Run) -> Path:
        parts = [one.sha256[:16] for one in (run.model, run.calibration) if one is not None]
        return self._file.parent / "-".join(parts)

    def _download(self, run: Run) -> None:
        """Get the files of a run that are not there yet; leave some room on the disk."""
        model = self._directory(run) / MODEL
        for file, path in ((run.model, model), (run.calibration, calibration_path(model))):
            if file is None or run.model is None:
                continue
            free = shutil.disk_usage(self._file.parents[1]).free
            if free < file.bytes + 500_000_000:
                raise StepvadError(f"{file.name}: expected room on the disk, got {free:,} bytes")
            registry.download(partial(self._chunk, file), file, path)

    def _chunk(self, file: registry.File, i: int) -> bytes:
        return self._ask(lambda broker: registry.chunk(broker, file, i), registry.CHUNK_S)

    def _remove_old(self, value: Rollout) -> None:
        """Remove the files of runs that the group has left behind."""
        runs = [value.run, value.before, value.next.run if value.next else None]
        kept = {self._directory(run).name for run in runs if run is not None}
        kept.add(Path(self.current.lay.get("model", "")).parent.name)
        for path in self._file.parent.glob("*/"):
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)


class Marks:
    """Marks of events both ways; the later one counts.

    `told` is the time of each mark that both sides know, so that a look at an event, which has a
    time as well, is told from a mark that was taken back.
    """

    def __init__(self, parts: PageParts, told: dict[str, Number], ask: Ask) -> None:
        self._store, self._site = parts.store, parts.settings.name
        self._log = parts.settings.web.accounts or parts.settings.data / ACCOUNTS
        self._told, self._ask = told, ask
        self._revision = 0

    def send(self) -> None:
        """Send the marks that were made at the site since."""
        reviews = self._store.reviews()
        for id in self._told.keys() - reviews.keys():  # the event is deleted
            del self._told[id]
        for id, review in reviews.items():
            is_mark = review.mark is not None or id in self._told
            record = self._store.event(id) if is_mark and self._told.get(id) != review.at else None
            if record is None:
                continue
            message = EventMark(
                site=self._site,
                id=id,
                mark=review.mark,
                at=review.at,
                by=review.by,
                start_time=record.start_time,
            )
            subject, data = streams.events(self._site), encode(message)
            self._ask(partial(Connection.publish, subject=subject, data=data))
            self._told[id] = review.at

    def take(self) -> None:
        """Apply the marks that were made at the centre."""
        found = self._ask(lambda broker: broker.last(streams.MARKS, streams.marks(self._site)))
        if found is None or found.revision == self._revision:
            return
        marks = decode(dict[str, Review], found.data, f"marks of {self._site}")
        reviews = self._store.reviews([*marks])
        for id, new in marks.items():
            own = reviews.get(id)
            is_marked = own is not None and (own.mark is not None or id in self._told)
            if own is not None and is_marked and own.at >= new.at:
                continue
            if self._store.event(id) is not None:
                message = MarkMessage(id, new.mark)
                mark_stored(self._store, message, f"fleet:{new.by}", self._log, at=new.at)
                self._told[id] = new.at
        self._revision = found.revision


class Answers:
    """Answers to questions of the centre, a few a second, in a stage of their own."""

    def __init__(self, connection: ConnectionThread, parts: PageParts, looks: Looks) -> None:
        self.stage = Loop("fleet-asks", self._step, CHECK_S)
        self._connection, self._parts, self._looks = connection, parts, looks
        self._asked: queue.Queue[Msg] = queue.Queue(ASKS_KEPT)
        self._times: deque[float] = deque(maxlen=ASKS_A_SECOND)
        self._repeats = Repeats()
        connection.thread.start(self._listen())

    async def _listen(self) -> None:
        broker = await self._connection.connection()
        await broker.answer(streams.ask(self._parts.settings.name), self._hear)

    async def _hear(self, message: Msg) -> None:
        """Queue a question; in the thread of the connection."""
        now = time.monotonic()
        is_much = len(self._times) == ASKS_A_SECOND and now - self._times[0] < 1.0
        if not message.reply or is_much or self._asked.full():
            self._repeats.log(logger.warning, "dropped", "questions of the fleet are dropped")
            return
        self._times.append(now)
        self._asked.put_nowait(message)

    def _step(self, loop: Loop) -> bool:
        try:
            message = self._asked.get(timeout=ASKS_S)
        except queue.Empty:
            return False
        self._connection.thread.start(message.respond(self._answer(message.data)))
        return not loop.stopping.is_set()

    def _answer(self, data: bytes) -> bytes:
        try:
            question = decode(Question, data, "question")
            match question.what:
                case "explain":
                    answer = encode({"explanation": self._parts.explain(question.id)})
                case "poses":
                    poses = self._parts.store.poses(question.id)
                    if poses is None:
                        raise DataError(f"event {question.id}: expected poses, got none any more")
                    answer = encode({"poses": poses})  # in base64
                case "look":
                    self._looks.now()
                    answer = encode({"looked": True})
            if len(answer) <= MOST_ANSWER:
                return answer
            words = f"expected at most {MOST_ANSWER} bytes, got {len(answer)}; look at the site"
        except Exception as error:
            words = str(error) if isinstance(error, StepvadError) else type(error).__name__
        return encode({"error": words})


def _read(kind: type[T], path: Path) -> T | None:
    return read_state(path, kind, "state of the fleet", most=MAX_BYTES, lost="it starts anew")
