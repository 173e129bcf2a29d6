"""What goes wrong at a site: each fault is a generator that breaks something and undoes it.

While it yields, a fifth of a second passes; one that ends early leaves the rest to the site.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

from stepvad.site.store.events import FILE_NAME
from studies.fault_parts.site import CAMERAS, STREAMED, TOKEN, Site
from tests.site.notify.services import Browser
from tests.site.sites import frozen

Played = Iterator[None]
AHEAD_S = 31 * 86400
PAGE = 4096
SEARCHERS, PIPELINES, GUESSES = 8, 300, 400
PUSHES = 64
PASSWORD = "four-words-that-nobody-guesses"  # noqa: S105  # the same
TURN_S = 0.01
"""How long a slow pose process may run in each second: for about one frame."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the table."""

    name: str
    words: str
    play: Callable[[Site], Played]
    seconds: float = 30.0
    away: tuple[str, ...] = ()
    """Sinks that are away: they are late by as much."""
    why: str = ""
    """Why alerts are late or lost, or what else there is to say."""


def always() -> Played:
    """Nothing more, until the time is over."""
    while True:
        yield


def read_only(site: Site) -> Played:
    site.disk.fail()
    try:
        yield from always()
    finally:
        site.disk.unmount()
        site.disk.mount()


def full(site: Site) -> Played:
    fills = site.disk.place / "fills"
    try:
        while True:
            with fills.open("ab", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(1 << 16))
            with fills.open("ab", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(512))
            yield
    finally:
        fills.unlink()


def no_inodes(site: Site) -> Played:
    place = site.disk.place / "many"
    place.mkdir()
    n = 0
    try:
        while True:
            with suppress(OSError):
                while True:
                    (place / str(n)).touch()
                    n += 1
            yield
    finally:
        shutil.rmtree(place)


def locked(site: Site) -> Played:
    code = "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], timeout=60)\n"
    code += "c.execute('BEGIN EXCLUSIVE')\nprint(flush=True)\nsys.stdin.read()"
    words = [sys.executable, "-c", code, str(site.data / FILE_NAME)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            yield from always()
        finally:
            other.kill()


def corrupt(site: Site) -> Played:
    """Overwrite the first page of the table of events, in the file and in what waits for it."""
    path = site.data / FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'events'"
        (page,) = connection.execute(query).fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(os.urandom(PAGE))
        os.fsync(file.fileno())
    yield


def removed(site: Site) -> Played:
    shutil.rmtree(site.data)
    yield


def io_errors(site: Site) -> Played:
    site.shim.fail_writes(True)
    try:
        yield from always()
    finally:
        site.shim.fail_writes(False)


def read_only_and_killed(site: Site) -> Played:
    fault = read_only(site)
    try:
        for _ in range(50):
            yield next(fault)
        yield from killed_site(site)
        yield from fault
    finally:
        fault.close()  # type: ignore[attr-defined]


def receiver_away(site: Site) -> Played:
    site.webhook.stop()
    try:
        yield from always()
    finally:
        site.webhook.start()


def receiver_mute(site: Site) -> Played:
    site.webhook.answers.clear()
    try:
        yield from always()
    finally:
        site.webhook.answers.set()


def broker_killed(site: Site) -> Played:
    with site.subscriber.killed():
        yield from always()


def mail_away(site: Site) -> Played:
    site.mailbox.stop()
    try:
        yield from always()
    finally:
        site.mailbox.start()


def stream_killed(site: Site) -> Played:
    site.cut(STREAMED)
    site.rtsp.kill()
    try:
        yield from always()
    finally:
        site.rtsp.start()


def stream_frozen(site: Site) -> Played:
    pid = site.rtsp.process.pid
    site.cut(STREAMED)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield from always()
    finally:
        os.kill(pid, signal.SIGCONT)


def child_killed(site: Site, name: str, number: signal.Signals) -> Played:
    """Kill a process of the site, or stop it; it is over when its camera is scored again."""
    pid = site.pid(name)
    site.cut(STREAMED)
    with site.blind(STREAMED):
        os.kill(pid, number)
        while not site.is_replaced(name, pid):
            yield
        before = site.scored(STREAMED)
        while site.scored(STREAMED) in (None, before):
            yield


def killed_site(site: Site) -> Played:
    pid = site.pid("site")
    site.cut(*CAMERAS)
    os.kill(pid, signal.SIGKILL)
    while not site.is_replaced("site", pid):
        yield


def frozen_site(site: Site) -> Played:
    pid = site.pid("site")
    site.cut(*CAMERAS)
    os.kill(pid, signal.SIGSTOP)
    try:
        while not site.is_replaced("site", pid):
            yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def thread_frozen(site: Site, name: str) -> Played:
    """Keep a thread of the site from running until the site is replaced."""
    pid = site.pid("site")
    with frozen(pid, name[:15]):
        while not site.is_replaced("site", pid):
            yield
    site.cut(*CAMERAS)


def clock_set(site: Site, seconds: int) -> Played:
    site.shim.set_ahead(seconds)
    try:
        yield from always()
    finally:
        site.shim.set_ahead(0)


def log_in(site: Site, name: str, role: str) -> dict[str, str]:
    """Add an account that no fault before has added, and log in: the headers of its requests."""
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    body = json.dumps({"name": name, "role": role})
    json_ = {"Content-Type": "application/json"}
    status, words, _ = site.request("POST", "/api/users", bearer | json_, body)
    assert status == 201, f"no account {name}: {status}, {words[:200]}"
    key = json.loads(words)["path"].partition("once=")[2]
    form = {"Content-Type": "application/x-www-form-urlencoded"} | origin(site)
    fields = urlencode({"key": key, "password": PASSWORD})
    _, _, headers = site.request("POST", "/first", form, fields)
    return {"Cookie": headers["set-cookie"].partition(";")[0]} | json_ | origin(site)


def origin(site: Site) -> dict[str, str]:
    return {"Origin": f"http://127.0.0.1:{site.port}"}


def beside(site: Site, n: int, work: Callable[[int], None]) -> Played:
    """Do something in many threads, again and again, until the time is over."""
    over = threading.Event()

    def run(number: int) -> None:
        while not over.is_set():
            work(number)

    threads = [threading.Thread(target=run, args=[number]) for number in range(n)]
    for thread in threads:
        thread.start()
    before, began = site.scored(STREAMED), time.monotonic()
    try:
        yield from always()
    finally:
        over.set()
        for thread in threads:
            thread.join()
        after, took = site.scored(STREAMED), time.monotonic() - began
        if before is not None and after is not None:
            site.remarks.append(f"{(after - before) / took:.1f} of 10 frames a second scored")


OLDER = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10000)
INSERT OR IGNORE INTO events (id, camera, label, start_time, end_time, changed, stored, body)
SELECT id || n, camera, label, start_time - 60 * n, start_time - 60 * n + 5, changed, stored,
    json_set(body, '$.id', id || n, '$.start_time', start_time - 60 * n,
             '$.end_time', start_time - 60 * n + 5, '$.ended_by', 'calm')
FROM (SELECT * FROM events LIMIT 1), numbers
"""
"""A week of earlier events, so that a search has something to do."""


def searchers(site: Site) -> Played:
    with closing(sqlite3.connect(site.data / FILE_NAME, timeout=10)) as connection, connection:
        connection.execute(OLDER)
    headers = log_in(site, f"viewer{time.time_ns()}", "look")
    answers: Counter[int] = Counter()

    def search(number: int) -> None:
        path = f"/api/events?words=nothing+like+this+{number}"
        answers[site.request("GET", path, headers)[0]] += 1

    try:
        yield from beside(site, SEARCHERS, search)
    finally:
        said = ", ".join(f"{n} answered {status}" for status, n in answers.most_common())
        site.remarks.append(f"searches: {said}")


def guessers(site: Site) -> Played:
    name = f"guard{time.time_ns()}"
    log_in(site, name, "look")
    form = {"Content-Type": "application/x-www-form-urlencoded"} | origin(site)

    def guess(number: int) -> None:
        fields = urlencode({"name": name, "password": f"wrong {time.time()}"})
        site.request("POST", "/login", form, fields, source=f"127.0.1.{number + 1}")
        time.sleep(0.1)

    playing = beside(site, 4, guess)
    for _ in range(75):
        yield next(playing)
    fields = urlencode({"name": name, "password": PASSWORD})
    began = time.monotonic()
    status, _, _ = site.request("POST", "/login", form, fields, source="127.0.2.1")
    took = time.monotonic() - began
    what = "logged in" if status == 303 else f"was refused ({status})"
    site.remarks.append(f"the right password from a new address {what} after {took:.1f} s")
    yield from playing


def pushes(site: Site) -> Played:
    administrator = log_in(site, f"owner{time.time_ns()}", "administer")
    viewer = log_in(site, f"viewer{time.time_ns()}", "look")
    own = "https://updates.push.services.mozilla.com/wpush/v2/owner"
    site.request("PUT", "/api/notifications/subscriptions", administrator, _subscription(own))
    statuses = []
    for number in range(PUSHES):
        endpoint = f"https://updates.push.services.mozilla.com/wpush/v2/viewer-{number}"
        body = _subscription(endpoint)
        status, _, _ = site.request("PUT", "/api/notifications/subscriptions", viewer, body)
        statuses.append(status)
        yield
    stored = "".join(path.read_text() for path in site.data.rglob("*.json") if path.is_file())
    taken = sum(status == 204 for status in statuses)
    kept = "kept" if own in stored else "evicted"
    site.remarks.append(f"{taken} of {PUSHES} taken, the administrator's phone {kept}")


def _subscription(endpoint: str) -> str:
    browser = Browser()
    keys = {"p256dh": browser.p256dh, "auth": browser.auth}
    return json.dumps({"endpoint": endpoint, "keys": keys})


def pipelines(site: Site) -> Played:
    """Clients with the token that ask without reading an answer."""
    ask = f"GET /api/events?limit=200 HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n"
    ask += f"Authorization: Bearer {TOKEN}\r\n\r\n"
    sockets: list[socket.socket] = []
    asked_s = []
    try:
        for _ in range(PIPELINES):
            with suppress(OSError):
                one = socket.create_connection(("127.0.0.1", site.port), timeout=2)
                one.setblocking(False)
                sockets.append(one)
        while True:
            for one in sockets:
                with suppress(OSError):
                    one.send(ask.encode() * 4)
            began = time.monotonic()
            status, _ = site.get("/api/cameras")
            asked_s.append(time.monotonic() - began if status == 200 else 10.0)
            yield
    finally:
        for one in sockets:
            one.close()
        if asked_s:
            site.remarks.append(f"others waited for the page for up to {max(asked_s):.1f} s")


def slow_poses(site: Site) -> Played:
    """A camera process that gets to about one frame in ten."""
    pid = site.pid("cameras-0")

    def slow(number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(1 - TURN_S)
            os.kill(pid, signal.SIGCONT)
            time.sleep(TURN_S)

    yield from beside(site, 1, slow)


REPLACED = "after 50 to 60 s without a sign of life the site starts again"
FEW = "of an anomaly of 2.5 s there are two frames"
RESTARTED = "nobody watches until the site is back"

DECK = (
    Fault("read-only", "Disk turns read-only", read_only),
    Fault("full", "Disk full", full, 60.0),
    Fault("inodes", "Disk out of inodes", no_inodes),
    Fault("locked", "Database locked by another process", locked),
    Fault("corrupt", "Page of the database damaged", corrupt),
    Fault("removed", "Data directory removed", removed),
    Fault("io-errors", "Every write to the disk fails", io_errors),
    Fault("read-only-killed", "Disk read-only, then the site killed", read_only_and_killed, 45.0,
          why=RESTARTED),
    Fault("webhook", "Receiver of the webhook away", receiver_away, 330.0, ("webhook",),
          "what waited comes in order within 20 s"),
    Fault("mute", "Receiver that accepts and never answers", receiver_mute, 30.0, ("webhook",)),
    Fault("broker", "MQTT broker killed", broker_killed, away=("mqtt",)),
    Fault("mail", "Mail server away", mail_away, 30.0, ("mail",), "mail is tried every 30 s"),
    Fault("stream", "RTSP server killed", stream_killed, 45.0),
    Fault("stream-frozen", "RTSP server frozen", stream_frozen, 45.0),
    Fault("cameras", "Camera process killed",
          partial(child_killed, name="cameras-0", number=signal.SIGKILL)),
    Fault("cameras-frozen", "Camera process frozen",
          partial(child_killed, name="cameras-0", number=signal.SIGSTOP)),
    Fault("site", "Site killed", killed_site, why=RESTARTED),
    Fault("site-frozen", "Site frozen", frozen_site, 90.0,
          why=f"systemd waits a minute for a sign of life; {RESTARTED}"),
    Fault("writer-frozen", "Event writer frozen",
          partial(thread_frozen, name="event-writer"), 90.0, why=REPLACED),
    Fault("people-frozen", "Thread of the mails frozen",
          partial(thread_frozen, name="notify:guards"), 90.0,
          why=f"{REPLACED}; a mail that was under way may come twice"),
    Fault("clock-back", "Clock set back a day", partial(clock_set, seconds=-86400)),
    Fault("clock-ahead", "Clock 31 days ahead", partial(clock_set, seconds=AHEAD_S)),
    Fault("searches", "Eight viewers search without pause", searchers),
    Fault("guesses", "Wrong passwords by the hundred", guessers),
    Fault("pushes", "A viewer subscribes 64 browsers", pushes),
    Fault("pipelines", "300 clients ask and never read", pipelines, why="mail waits for a core"),
    Fault("slow", "Camera process ten times too slow", slow_poses, 75.0, why=FEW),
)  # fmt: skip
