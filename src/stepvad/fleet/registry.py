"""The registry of a fleet: what each group of sites should run, in stages, with the way back."""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

# Loaded by the fleet alone, where a broker is spoken to.
from nats.js.api import DeliverPolicy  # noqa: TID253

from stepvad.codec import Count, Number, decode, encode
from stepvad.errors import ConfigError, DataError
from stepvad.files import replacing
from stepvad.fleet import streams
from stepvad.fleet.connection import ChangedError, Connection, UnavailableError

CHUNK_S = 30.0
"""Longest wait for a chunk; a slow link takes some seconds."""
LEAST_FALSE, SIGNIFICANCE = 3, 0.05
"""A stage is stopped for at least so many false alerts at one site, if chance alone makes that of
any staged site with a smaller probability than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that is stored in chunks, by its digest."""

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    bytes: Annotated[int, Meta(ge=1, le=2_000_000_000)]
    name: str
    """Its name where it came from, for people."""

    @property
    def chunks(self) -> int:
        """Number of its chunks."""
        return -(-self.bytes // streams.CHUNK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a site runs: its own model and settings, as far as these do not replace them."""

    model: File | None = None
    calibration: File | None = None
    settings: str = ""
    """TOML text with tables of a site's settings."""

    @property
    def digest(self) -> str:
        """A name for exactly this."""
        return hashlib.sha256(encode(self)).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A run that some sites try."""

    run: Run
    percent: Annotated[int, Meta(ge=1, le=100)]
    since: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The value of a group."""

    run: Run = field(default_factory=Run)
    before: Run | None = None
    next: Stage | None = None
    by: str = ""
    at: Number = 0.0
    stopped: str | None = None
    """Why the last stage was withdrawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRun:
    """What a site runs of its fleet, by digests."""

    model: str | None = None
    digest: str = ""
    """That of the run; empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseAlerts:
    """The alerts that people marked as normal: of this run, and in the days before it."""

    days: Number = 0.0
    false: Count = 0
    before_days: Number = 0.0
    before_false: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a site says of itself each minute."""

    site: str
    group: str
    version: str = ""
    at: Number = 0.0
    revision: Count = 0
    """Revision of the value of its group that it has seen."""
    run: RunningRun = field(default_factory=RunningRun)
    refused: str | None = None
    """Why it does not run what it should."""
    cameras: dict[str, Count] = field(default_factory=dict)
    load: dict[str, Number] = field(default_factory=dict)
    alerts: FalseAlerts = field(default_factory=FalseAlerts)
    budget: str = ""
    learning: str = ""
    troubles: tuple[str, ...] = ()


def wanted(value: Rollout, site: str) -> Run:
    """What a site should run; which sites are the first depends on the run."""
    if value.next is None:
        return value.run
    number = zlib.crc32(f"{site}:{value.next.run.digest}".encode()) % 100
    return value.next.run if number < value.next.percent else value.run


def staged(value: Rollout, run: Run, percent: int) -> Rollout:
    """Let some of the sites try a run; the same run again: let more of them try it."""
    is_more = value.next is not None and value.next.run == run
    since = value.next.since if value.next and is_more else time.time()
    return replace(value, next=Stage(run=run, percent=percent, since=since), stopped=None)


def for_all(value: Rollout, run: Run) -> Rollout:
    """Have all sites run something."""
    before = value.before if run == value.run else value.run
    return replace(value, run=run, before=before, next=None, stopped=None)


def back(value: Rollout, stopped: str | None = None) -> Rollout:
    """Withdraw what some sites try; else have all run what they ran before."""
    if value.next is not None:
        return replace(value, next=None, stopped=stopped)
    if value.before is None:
        raise ConfigError("rollout: expected something to go back to, got a first run")
    return replace(value, run=value.before, before=None, stopped=stopped)


def to_stop(value: Rollout, statuses: Iterable[Status]) -> str | None:
    """The reason to withdraw a stage: sites that try it have more false alerts a day than before.

    Marks are few, so each staged site is tested: had nothing changed, its false alerts would fall
    into the time since and before by their lengths (a binomial test).
    """
    if value.next is None:
        return None
    from scipy.special import bdtrc  # slow to load

    digest = value.next.run.digest
    trying = [one for one in statuses if one.run.digest == digest]
    for one in trying:
        told = one.alerts
        if told.false < LEAST_FALSE or told.days <= 0 or told.before_days <= 0:
            continue
        share = told.days / (told.days + told.before_days)
        chance = bdtrc(told.false - 1, told.false + told.before_false, share)
        if chance < SIGNIFICANCE / len(trying):
            return (
                f"site {one.site}: {told.false} false alerts in {told.days:.1f} days, "
                f"{told.before_false} in the {told.before_days:.1f} days before"
            )
    return None


async def read(connection: Connection, group: str) -> tuple[Rollout, int]:
    """The value of a group and its revision, 0 if there is none."""
    last = await connection.last(streams.REGISTRY, streams.registry(group))
    if last is None:
        return Rollout(), 0
    return decode(Rollout, last.data, f"registry of {group}"), last.revision


async def change(
    connection: Connection, group: str, how: Callable[[Rollout], Rollout], by: str
) -> Rollout:
    """Replace the value of a group; raise `ChangedError` if somebody else does, too."""
    before, revision = await read(connection, group)
    after = how(before)
    if after == before:
        return before
    after = replace(after, by=by, at=time.time())
    try:
        await connection.publish(streams.registry(group), encode(after), expect=revision)
    except ChangedError:
        raise ChangedError(
            f"group {group}: expected nobody else to change it, got another roll-out meanwhile",
            hint="look at what it runs now, then try again",
        ) from None
    return after


async def put(connection: Connection, data: bytes, name: str) -> File:
    """Store a file in chunks."""
    file = File(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data), name=name)
    for i in range(file.chunks):
        part = data[i * streams.CHUNK : (i + 1) * streams.CHUNK]
        await connection.publish(streams.chunk(file.sha256, i), part)
    return file


async def chunk(connection: Connection, file: File, i: int) -> bytes:
    """A chunk of a file."""
    found = await connection.last(streams.FILES, streams.chunk(file.sha256, i), CHUNK_S)
    if found is None:
        raise UnavailableError(f"{file.name}: expected chunk {i} of {file.chunks}, got none")
    return found.data


async def statuses(connection: Connection) -> list[tuple[Status, float]]:
    """The last status of each site, and when the broker got it."""
    found = []
    async with aclosing(streams.Reader(connection, streams.STATUS, "statuses")) as reader:
        every = {"filter_subject": streams.status("*")}
        left = await reader.open(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, **every)
        while left and (messages := await reader.read()):
            for one in messages:
                site = one.subject.split(".")[1]  # what it says of itself may be anything
                try:
                    status = replace(decode(Status, one.data, "status"), site=site)
                except DataError as error:
                    words = f"no status that can be read: {error}"
                    status = Status(site=site, group="", troubles=(words,))
                found.append((status, one.metadata.timestamp.timestamp()))
            left = messages[-1].metadata.num_pending
    return found


def download(chunk_at: Callable[[int], bytes], file: File, path: Path) -> None:
    """Get a file that is not there yet; it has its name once it is whole and its digest is right.

    What a former attempt got is kept, so that a slow link makes progress.
    """
    if path.exists() and _digest(path) == file.sha256:
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(path.name + ".part")
    with part.open("ab") as out:
        done = min(out.tell() // streams.CHUNK, file.chunks)
        out.truncate(done * streams.CHUNK)
        for i in range(done, file.chunks):
            out.write(chunk_at(i))
    if _digest(part) != file.sha256:
        part.unlink()
        raise DataError(f"{file.name}: expected the digest {file.sha256[:16]}, got another")
    with replacing(path) as whole:  # on disk before it has its name
        part.replace(whole)


def _digest(path: Path) -> str:
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
