"""What should have been heard, and what was: anomalies lost, doubled and late."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from studies.fault_parts.servers import SINKS, Heard, Messages
from studies.fault_parts.site import ANOMALY_S, PERIOD_S, PLAYED, RATE, Unseen

DAY_S = 86400.0
SEEN_S = 2.0
"""An anomaly that is watched for so long raises an event: 12 poses, and 0.4 s above the limit."""
NEAR_S = 4.0
"""How far the beginning of an event may be from that of its anomaly."""
LATE_S = 15.0


@dataclass
class Anomaly:
    """One that was played: when, and when each sink first heard of it."""

    camera: str
    at: float
    is_seen: bool = True
    heard: dict[str, float] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    mails: int = 0


@dataclass
class Connection:
    """A camera from one connection to the next; in it anomalies come by the clock."""

    camera: str
    wall0: float
    first: float
    """The beginning of its first anomaly."""


def anomalies(messages: Messages, unseen: Sequence[Unseen], until: float) -> list[Anomaly]:
    """All that were played until a time, with what was heard of each."""
    found: list[Anomaly] = []
    for camera, connections in _connections(messages.events).items():
        cuts = [gap for gap in unseen if gap.is_cut and camera in gap.cameras]
        nexts = [one.wall0 for one in connections[1:]] + [until]
        for one, following in zip(connections, nexts, strict=True):
            end = following
            for gap in cuts:
                if one.wall0 < gap.since < following:
                    end, gap.until = min(end, gap.since), min(gap.until, following)
            at = one.first
            while at < end - SEEN_S:
                found.append(Anomaly(one.camera, at, _is_seen(one.camera, at, end, unseen)))
                at += PERIOD_S
    for heard in messages.events:
        if anomaly := _nearest(found, heard.camera, heard.start):
            anomaly.heard.setdefault(heard.sink, heard.at)
            if heard.kind == "new":
                anomaly.ids.add(heard.id)
    _hear_mails(found, messages)
    return sorted(found, key=lambda one: one.at)


def _connections(events: Sequence[Heard]) -> dict[str, list[Connection]]:
    """Connections of each camera, by the events that were heard."""
    found: dict[str, list[Connection]] = defaultdict(list)
    for one in sorted(events, key=lambda one: one.at):
        start = _today(one.start, one.at)
        wall0 = start - one.frame / RATE
        if all(abs(wall0 - known.wall0) > NEAR_S for known in found[one.camera]):
            # what plays a file knows its anomalies; a stream begins at about the first frame
            first = wall0 + PLAYED[one.camera] if one.camera in PLAYED else start
            while first - PERIOD_S > wall0:
                first -= PERIOD_S
            found[one.camera].append(Connection(one.camera, wall0, first))
    for some in found.values():
        some.sort(key=lambda one: one.wall0)
    return found


def _today(start: float, now: float) -> float:
    """The time of an event by a clock that is right: it may be wrong by whole days."""
    return start + DAY_S * round((now - start) / DAY_S)


def _is_seen(camera: str, at: float, end: float, unseen: Sequence[Unseen]) -> bool:
    """Whether an anomaly was watched for long enough."""
    watched = [(at, min(at + ANOMALY_S, end))]
    for gap in unseen:
        if camera in gap.cameras and not gap.is_cut:
            watched = [
                part
                for low, high in watched
                for part in ((low, min(high, gap.since)), (max(low, gap.until), high))
                if part[0] < part[1]
            ]
    return any(high - low >= SEEN_S for low, high in watched)


def _nearest(some: Sequence[Anomaly], camera: str, time: float) -> Anomaly | None:
    """The anomaly of a camera that is nearest to a time of any day."""
    near = [
        (gap, one)
        for one in some
        if one.camera == camera
        and (gap := abs((time - one.at + DAY_S / 2) % DAY_S - DAY_S / 2)) < NEAR_S
    ]
    return min(near, key=lambda pair: pair[0])[1] if near else None


def _hear_mails(some: Sequence[Anomaly], messages: Messages) -> None:
    for mail in messages.mails:
        if not mail.is_alert:
            continue
        named: Counter[str] = Counter()
        for camera, second, has_words in mail.mentions():
            named[camera] += 1
            if anomaly := _nearest(some, camera, second):
                anomaly.heard.setdefault("mail", mail.at)
                anomaly.mails += has_words and "Nobody has looked" not in mail.body
        # a message on many events lists the latest: the others are the oldest that waited
        for camera, n in mail.counts().items():
            waited = [
                one
                for one in some
                if one.camera == camera and "mail" not in one.heard and one.at < mail.at
            ]
            for anomaly in waited[: max(n - named[camera], 0)]:
                anomaly.heard["mail"] = mail.at


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the anomalies of a fault."""

    played: int
    unseen: int
    """Anomalies while their camera could not be seen."""
    lost: int
    """Seen, and no sink heard of it."""
    missed: dict[str, int]
    """Seen, and heard by others, by the sink that did not hear of it."""
    doubled: int
    late: int
    delays: dict[str, list[float]]
    """Seconds from the anomaly to the first message, by sink."""


def judge(
    some: Sequence[Anomaly], messages: Messages, since: float, away: dict[str, float]
) -> Verdict:
    """Judge the anomalies from a time on; `away`: sinks, and when they were back."""
    played = [one for one in some if one.at >= since]
    seen = [one for one in played if one.is_seen or one.heard]
    heard = [one for one in seen if one.heard]
    delays = {
        sink: [one.heard[sink] - one.at for one in heard if sink in one.heard] for sink in SINKS
    }
    late = sum(
        max(at - max(one.at, away.get(sink, 0.0)) for sink, at in one.heard.items()) > LATE_S
        for one in heard
    )
    return Verdict(
        played=len(played),
        unseen=len(played) - len(seen),
        lost=len(seen) - len(heard),
        missed={
            sink: n for sink in SINKS if (n := sum(sink not in one.heard for one in heard)) > 0
        },
        doubled=sum(_doubled(messages, played)),
        late=late,
        delays=delays,
    )


def _doubled(messages: Messages, played: Sequence[Anomaly]) -> Iterator[int]:
    """Same message twice at a receiver, two events for an anomaly, or two mails."""
    ids = {id for one in played for id in one.ids}
    keys = Counter((one.sink, one.key, one.kind) for one in messages.events if one.id in ids)
    yield sum(n - 1 for n in keys.values())
    yield len([id for one in played for id in one.ids]) - len(ids)  # one id for two of them
    for one in played:
        yield max(len(one.ids) - 1, 0) + max(one.mails - 1, 0)
