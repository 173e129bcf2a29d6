"""Sites without cameras: a real store, a real status, and people made of numbers; their servers."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from argon2 import PasswordHasher
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import ASGIApp

from stepvad.codec import from_plain
from stepvad.errors import DataError
from stepvad.events.record import Mark, Record, event_id
from stepvad.explain.event import EventExplanation
from stepvad.poses import Clip, Pose, Track
from stepvad.site.accounts import Accounts, Role
from stepvad.site.marks import MarkFollower
from stepvad.site.recorder import Replays
from stepvad.site.settings.live import SettingsEditor
from stepvad.site.settings.page import Web
from stepvad.site.settings.sections import CameraSettings, SiteSettings
from stepvad.site.status import LiveStatus
from stepvad.site.store.events import Store
from stepvad.web import STOP_S, PageContext, Server, bind, create_app

TOKEN = "a-token-of-this-test-0123456789"
HERE = "http://127.0.0.1:8080"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
THRESHOLD = 3.0
SIZE = (640, 360)
NOW = 1_700_000_000.0
ZONES = {"door": [(0.1, 0.1), (0.3, 0.1), (0.3, 0.9), (0.1, 0.9)]}
RECORDER = "http://frigate:5000/api/{camera}/start/{start}/end/{end}/clip.mp4?id={id}"
CAMERAS = ("yard", "gate")
EXPLANATION: dict[str, Any] = {
    "motion": {
        "first": 100,
        "fps": 10.0,
        "peak": 1,
        "size": 900,
        "bones": [[0, 1]],
        "camera": [[10, 10], [11, 10]],
        "observed": [[0, 0, 10, 10], [1, 1, 11, 11]],
        "ghost": [[0, 0, 10, 10], [1, 1, 11, 11]],
        "heat": [[0, 100], [0, 50]],
    },
    "track": 7,
    "frame": 101,
    "score": 6.5,
    "energy": 7.0,
    "confidence": 0.93,
    "scales": [{"sigma": 0.1, "weight": 1.0}],
    "ghost_energy": 0.4,
    "ghost_is_normal": True,
    "words": [{"says": "left arm raised", "first": 100, "last": 101}],
    "parts": [{"name": "left arm", "share": 1.0}],
    "views": [],
    "schema": 1,
}


@dataclass
class Site:
    """All that a running site has, but for its cameras."""

    settings: SiteSettings
    store: Store
    status: LiveStatus
    explanations: dict[str, EventExplanation] = field(default_factory=dict)
    editor: SettingsEditor | None = None
    marks: MarkFollower | None = None

    def explain(self, id: str) -> EventExplanation:
        if id not in self.explanations:
            raise DataError(f"event {id}: expected its poses, got none", hint="they were deleted")
        return self.explanations[id]

    def mark(self, id: str, mark: Mark | None, by: str) -> None:
        self.store.mark(id, mark, time.time(), by)

    def app(self, token: str = TOKEN, **options: Any) -> FastAPI:
        parts = self.settings, self.store, self.status, self.explain, self.mark
        replays = Replays(self.store, self.status, self.settings.data / "poses")
        site = PageContext(*parts, marks=self.marks, editor=self.editor, replays=replays)
        return create_app(site, token, **options)


@contextmanager
def site(
    directory: Path, cameras: tuple[str, ...] = CAMERAS, web: Web | None = None
) -> Iterator[Site]:
    """A site with nothing in it yet."""
    settings = SiteSettings(
        name="mill",
        data=directory,
        model=directory / "model.safetensors",
        cameras=[
            CameraSettings(name=name, url="demo:", zones=ZONES, recorder=RECORDER)
            for name in cameras
        ],
        web=web or Web(),
    )
    store = Store(directory / "events.db", ["mqtt"])
    status = LiveStatus()
    for name in cameras:
        status.camera(name, rate=10.0, threshold=THRESHOLD, model="walkers", zones=ZONES)
    try:
        yield Site(settings, store, status)
    finally:
        store.close()


def person(track: int, *, at: tuple[float, float] = (100.0, 100.0)) -> Pose:
    """Somebody, somewhere."""
    rng = np.random.default_rng(track)
    places = at + rng.normal(0, 20, (17, 2))
    return Pose(track, places.astype(np.float32), np.ones(17, np.float32))


def record(number: int, *, camera: str = "yard", **changes: Any) -> Record:
    """The event of that number; a minute lies between two."""
    facts: dict[str, Any] = {
        "id": event_id(camera, 1, number, 10 * number),
        "camera": camera,
        "score": 5.0,
        "top_score": 6.5,
        "start_time": NOW + 60 * number,
        "box": (10.0, 20.0, 110.0, 220.0),
        "zones": ("door",),
        "model_id": "walkers",
        "model_sha256": "ab" * 32,
        "track_id": number,
        "tracks": (number,),
        "epoch": 1,
        "frame_seq": 10 * number,
        "confidence": 0.9,
        "threshold": THRESHOLD,
        "scales": (0.1, 0.2),
        "why": "left arm raised",
    }
    return Record(**(facts | changes))


def happen(site: Site, number: int, *, camera: str = "yard", over: bool = True) -> Record:
    """An event from its start to its end."""
    one = record(number, camera=camera)
    site.store.change("new", one)
    if over:
        one = one.ended("calm", one.start_time + 5)
        site.store.change("end", one)
    site.store.put_poses(one.id, b"poses")
    return one


class ServerThread:
    """A server in a thread of its own."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.port, self.url = server.port, server.url
        self._thread = threading.Thread(target=server.run, name=server.name, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop the server; open requests have `STOP_S` to finish."""
        self.server.stop(time.monotonic() + STOP_S)
        self._thread.join(2 * STOP_S)


def serve(
    app: ASGIApp, host: str, port: int, *, certificate: Path | None = None, key: Path | None = None
) -> ServerThread:
    """Start serving an app in a thread; port 0 picks a free port."""
    return ServerThread(bind(app, host, port, certificate=certificate, key=key))


PASSWORD = "correct horse battery staple"
HASH = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash(PASSWORD)
"""Cheap to verify, for tests; the parameters are part of the hash."""
PEOPLE: dict[str, Role] = {"lena": "look", "jan": "judge", "ada": "administer"}


def with_people(accounts: Accounts) -> Accounts:
    """Accounts of one user per role."""
    for name, role in PEOPLE.items():
        accounts.create(name, role, HASH)
    return accounts


def visitor(app: FastAPI, address: str = "10.0.0.7") -> TestClient:
    """A browser in which nobody is logged in."""
    return TestClient(
        app,
        base_url=HERE,
        headers={"Origin": HERE},
        follow_redirects=False,
        client=(address, 50_000),
    )


def log_in(client: TestClient, name: str, password: str = PASSWORD) -> int:
    return client.post("/login", data={"name": name, "password": password}).status_code


def browser_of(app: FastAPI, name: str, address: str = "10.0.0.7") -> TestClient:
    """A browser in which somebody is logged in."""
    client = visitor(app, address)
    assert log_in(client, name) == 303
    return client


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate chain and its key."""

    chain: Path
    key: Path


def make_certificate(directory: Path, *names: str) -> Certificate:
    """A certificate for these names, signed by itself."""
    made = Certificate(directory / "chain.pem", directory / "key.pem")
    subjects = ",".join(f"IP:{name}" if name[0].isdigit() else f"DNS:{name}" for name in names)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", f"/CN={names[0]}", "-addext",
         f"subjectAltName={subjects}", "-keyout", made.key, "-out", made.chain],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return made


FPS = 10.0


def walk(track: int, frames: range) -> Track:
    """Somebody who goes to the right."""
    n = len(frames)
    places = np.zeros((n, 17, 2), np.float32) + 50.0 * track
    places[:, :, 0] += np.arange(n)[:, None] + 12 * (np.arange(17) % 3)
    places[:, :, 1] += 6 * np.arange(17)
    sure = np.ones((n, 17), np.float32)
    sure[:, 3] = 0.0
    return Track(track, np.array(frames), places, sure)


def crowd(n: int = 300) -> Clip:
    return Clip("yard", FPS, n, (walk(1, range(n)), walk(2, range(100, 250))))


def explained(frame: int) -> EventExplanation:
    return replace(from_plain(EventExplanation, EXPLANATION, "explanation"), frame=frame, track=2)
