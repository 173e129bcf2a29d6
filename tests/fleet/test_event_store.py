"""The events of a fleet as its page reads, judges and erases them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from stepvad.codec import encode, from_plain
from stepvad.errors import DataError
from stepvad.events.record import Mark, Record, Review, Search
from stepvad.explain.event import EventExplanation
from stepvad.fleet import database
from stepvad.fleet.event_store import EventStore
from stepvad.fleet.outbox import EventMark, EventMessage
from stepvad.site.store.database import SlowQueryError
from tests.fleet.served import Put, put_bodies
from tests.fleet.servers import postgres_server
from tests.web.sites import EXPLANATION, record

NOW = time.time() - 3600
EXPLAINED = from_plain(EventExplanation, EXPLANATION, "explanation")


def happened(number: int, camera: str = "yard", *, over: bool = True, **changes: Any) -> Record:
    """The event of that number; a minute lies between two."""
    one = record(number, camera=camera, start_time=NOW + 60 * number, version=number, **changes)
    return one.ended("calm", one.start_time + 5) if over else one


YARD = happened(1, over=False, why="Left arm raised")
GATE = happened(2, "gate", why="an arm raised")
FAR = happened(3, why="left arm raised", zones=())


@pytest.fixture
def store(put: Put, dsn: str) -> Iterator[EventStore]:
    """Two sites: two events of the one, one of the other."""
    put("north", YARD, GATE)
    put("south", FAR)
    with closing(EventStore(dsn)) as made:
        yield made


def ids(store: EventStore, **query: Any) -> list[str]:
    return [one.id for one in store.events(**query)]


N1, N2, S3 = f"north:{YARD.id}", f"north:{GATE.id}", f"south:{FAR.id}"


def test_events_have_the_names_of_their_sites_and_are_found_by_them_time_and_state(
    store: EventStore,
) -> None:
    assert ids(store) == [S3, N2, N1]
    assert store.event(N2) == replace(GATE, id=N2, camera="north/gate")
    assert store.event(GATE.id) is None
    assert store.event(f"south:{GATE.id}") is None
    assert ids(store, camera="north/") == [N2, N1]
    assert ids(store, camera="south/yard") == [S3]
    assert ids(store, camera="yard") == []
    assert ids(store, open=True) == [N1]
    assert ids(store, open=False) == [S3, N2]
    assert ids(store, since=GATE.start_time) == [S3, N2]
    assert ids(store, until=GATE.start_time) == [N1]
    assert ids(store, since=GATE.start_time, until=FAR.start_time) == [N2]


def test_pages_follow_each_other_also_where_events_begin_at_once(put: Put, dsn: str) -> None:
    many = [happened(n) for n in range(20)]
    many = [replace(one, start_time=NOW + n // 5, version=n) for n, one in enumerate(many)]
    put("north", *many[:10])
    put("south", *many[10:])
    with closing(EventStore(dsn)) as store:
        every, last = ids(store), None
        found: list[str] = []
        while page := ids(store, limit=3, before_id=last):
            found += page
            last = page[-1]
        assert found == every
        assert len(every) == 20


def test_events_are_searched_as_those_of_a_site(store: EventStore) -> None:
    def found(**search: Any) -> list[str]:
        return ids(store, search=Search(**search))

    assert [found(zone=zone) for zone in ("door", "doo")] == [[N2, N1], []]
    words = "ARM south", "arm nothing", "north/gate"
    assert [found(words=one) for one in words] == [[S3], [], [N2]]
    assert [found(min_score=score) for score in (6.5, 6.6)] == [[S3, N2, N1], []]
    assert [found(min_times=times) for times in (2.1, 2.2)] == [[S3, N2, N1], []]
    store.see(N2, 0.0, "jan")
    store.mark(S3, "normal", "eva")
    reviews = "to_review", "reviewed", "normal", "right"
    assert [found(review=one) for one in reviews] == [[N1], [S3, N2], [S3], []]


def test_the_latest_judgement_and_the_first_look_count(store: EventStore) -> None:
    assert store.to_review() == 3
    store.see(N2, 0.0, "jan")
    store.see(N2, 0.0, "eva")
    marks: tuple[Mark | None, ...] = ("normal", None, "right")
    at = [store.mark(S3, mark, "eva") for mark in marks]
    assert at == sorted(at)
    reviews = store.reviews([N1, N2, S3])
    assert reviews[S3] == Review("right", reviews[S3].at, "eva")
    assert reviews[S3].at == pytest.approx(at[-1])
    assert (reviews[N2].mark, reviews[N2].by) == (None, "jan")
    assert store.reviews() == reviews
    assert store.to_review() == 1
    for act in (lambda: store.mark("north:x", "normal", "eva"), lambda: store.see("x", 0.0)):
        with pytest.raises(DataError, match="unknown id"):
            act()


def test_a_mark_of_the_site_that_came_first_is_shown_with_its_event(put: Put, dsn: str) -> None:
    one = happened(1)
    start = one.start_time
    mark = EventMark(site="north", id=one.id, mark="normal", at=NOW, by="jan", start_time=start)
    asyncio.run(put_bodies(dsn, "north", [encode(mark)]))
    with closing(EventStore(dsn)) as store:
        assert ids(store) == []
        assert store.to_review() == 0
        put("north", one)
        assert store.reviews([f"north:{one.id}"])[f"north:{one.id}"].mark == "normal"


def test_erased_events_are_gone_and_do_not_come_back(store: EventStore, put: Put) -> None:
    assert store.delete(after=NOW + 1000).events == 0
    assert store.delete(ids=[N1]).kept_open == 1
    done = store.delete(before=FAR.start_time)
    assert (done.events, done.kept_open) == (1, 1)
    put("north", replace(GATE, version=99))
    assert ids(store) == [S3, N1]
    assert store.event(N2) is None
    with pytest.raises(DataError):
        store.mark(N2, "normal", "eva")
    assert store.delete(camera="south/").events == 1
    assert ids(store) == [N1]


def test_an_explanation_is_kept_until_its_event_changes_or_is_erased(
    store: EventStore, put: Put
) -> None:
    assert store.explanation(N2) is None
    store.keep_explanation(N2, EXPLAINED)
    assert store.explanation(N2) == EXPLAINED
    store.delete(ids=[N2])
    assert store.explanation(N2) is None


def test_the_inventory_names_cameras_and_is_counted_now_and_then(
    store: EventStore, put: Put
) -> None:
    stored = store.stored()
    assert stored.cameras == {"north/gate": 1, "north/yard": 1, "south/yard": 1}
    (kept,) = stored.kept
    assert kept.count == 3
    assert kept.bytes > 0
    assert kept.first == pytest.approx(YARD.start_time)
    put("west", happened(9))
    assert store.stored() is stored
    store.delete(ids=[N2])  # what one does oneself is seen at once
    assert store.stored().cameras == {"north/yard": 1, "south/yard": 1, "west/yard": 1}


def test_replicas_share_log_outs(store: EventStore, dsn: str) -> None:
    with closing(EventStore(dsn)) as other:
        store.end_session("a", time.time() - 1)
        store.end_session("b", time.time() + 60)
        assert other.has_ended("b")
        assert not other.has_ended("c")
        assert not other.has_ended("a")


def test_a_search_that_takes_too_long_says_so(store: EventStore, dsn: str) -> None:
    async def locked() -> None:
        async with database.connected(dsn) as connection, connection.transaction():
            await connection.execute("LOCK TABLE stepvad.events IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(SlowQueryError, match=r"at most 0\.2 s"):
                await asyncio.to_thread(ids, store, search=Search(words="arm", within_s=0.2))

    asyncio.run(locked())
    assert len(ids(store, search=Search(words="arm", within_s=10))) == 3


def test_the_rights_of_the_reader_are_enough_for_the_page(store: EventStore, dsn: str) -> None:
    async def allow() -> None:
        async with database.connected(dsn) as connection:
            await connection.execute("ALTER ROLE stepvad_reader LOGIN")

    asyncio.run(allow())
    with closing(EventStore(dsn.replace("//admin@", "//stepvad_reader@"))) as reader:
        assert len(ids(reader)) == 3
        reader.see(N1, 0.0)
        reader.mark(N2, "normal", "eva")
        reader.keep_explanation(N2, EXPLAINED)
        reader.end_session("a", time.time() + 60)
        assert reader.has_ended("a")
        assert reader.delete(ids=[N2]).events == 1


@pytest.mark.slow
def test_a_database_that_is_away_is_said_to_be_until_it_is_back() -> None:
    with postgres_server() as server:
        asyncio.run(database.set_up(server.dsn, 90.0))
        server.stop()
        with closing(EventStore(server.dsn)) as store:
            for _ in range(2):
                with pytest.raises(database.NoDatabaseError):
                    store.events()
                server.start()
                assert ids(store) == []
                server.kill()


@pytest.mark.slow
def test_what_the_page_asks_for_reads_no_whole_table(put: Put, dsn: str) -> None:
    """Each second it asks for the newest events and how many nobody has seen."""

    async def plans() -> list[str]:
        async with database.connected(dsn) as connection:
            one = json.dumps(json.loads(encode(happened(1))))
            await connection.execute(
                "INSERT INTO stepvad.events (site, id, month, camera, label, severity, start_time,"
                " end_time, top_score, version, record)"
                " SELECT 's' || n % 50, n::text, date_trunc('month', at AT TIME ZONE 'UTC'),"
                " 'yard', 'anomaly', 'alert', at, at, 5, 1, $1::jsonb"
                " FROM generate_series(1, 30000) AS n,"
                " LATERAL (SELECT now() - make_interval(secs => n) AS at) AS when_",
                one,
            )
            await connection.execute("ANALYZE stepvad.events")
            return [
                row[0]
                for statement in (
                    "SELECT site, record FROM stepvad.events WHERE record IS NOT NULL "
                    "ORDER BY start_time DESC, site DESC, id DESC LIMIT 50",
                    "SELECT record FROM stepvad.events "
                    "WHERE site = 's3' AND id = '3' AND record IS NOT NULL",
                )
                for row in await connection.fetch(f"EXPLAIN {statement}")
            ]

    said = asyncio.run(plans())
    month = datetime.now(UTC).strftime("events_%Y_%m")
    assert any(month in line for line in said), said
    assert not [line for line in said if "Seq Scan" in line and month in line], said


def test_an_event_that_is_none_hides_no_others(store: EventStore, put: Put, dsn: str) -> None:
    body = json.loads(encode(EventMessage(type="end", site="west", event=happened(5))))
    body["event"]["box"] = [1.0]
    asyncio.run(put_bodies(dsn, "west", [json.dumps(body).encode()]))
    assert ids(store) == [S3, N2, N1]
    assert store.event(f"west:{body['event']['id']}") is None
