"""A site without a model in Chromium: it learns, alerts, is corrected, and learns from that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from stepvad.formats import write_clip
from stepvad.poses import Clip
from stepvad.site.app import Site
from stepvad.site.learning.learner import start_process
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import token_of
from stepvad.web.app import serve_page
from tests.browser import IN_CHROMIUM, log_in, new_page, violations
from tests.site.records import record_clips
from tests.site.sites import one_person, pose_camera
from tests.video.servers import free_port, wait_until

pytestmark = [*IN_CHROMIUM, pytest.mark.ci]


class RestartingSite:
    """A site that starts again with every new model, as `stepvad watch` does."""

    def __init__(self, path: Path, later: Clip) -> None:
        """Once it has learned, its camera plays a `later` clip."""
        self.path, self.settings, self._later = path, load(path), later
        self.starts = 0
        self._ended = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._stop = stop = threading.Event()
            self.starts += 1
            rounds = start_process(self.path)
            site = Site(self.settings, serve=serve_page, rounds=rounds, reload=self._restart)
            site.run(stop)

    def _restart(self) -> None:
        write_clip(self._later, Path(self.settings.cameras[0].url))
        self._stop.set()

    def close(self) -> None:
        self._ended.set()
        self._stop.set()
        self._thread.join(60.0)


def shaken(clip: Clip, seed: int) -> Clip:
    """A clip with joints that are never found in quite the same place, and walks that differ."""
    rng = np.random.default_rng(seed)
    (track,) = clip.tracks
    noise = rng.normal(0, 1, track.keypoints.shape)
    joints = (track.keypoints * rng.uniform(0.95, 1.05) + noise).astype(np.float32)
    return replace(clip, tracks=(replace(track, keypoints=joints),))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RestartingSite]:
    """A camera that sees somebody walking and, once that is learned, a jumble every 9 seconds."""
    *walk, seen = (shaken(one_person(36.0, every_s=1e9, phase_s=1e8), n) for n in range(25))
    camera = pose_camera("yard", seen, tmp_path).replace("threshold = 20.0\n", "")
    path = tmp_path / "site.toml"
    web = f"[web]\nport = {free_port()}\n[learning]\nfit_hours = []\n"
    path.write_text(camera + web)
    record_clips(tmp_path / "site-data", "yard", walk, time.time() - 7200)
    running = RestartingSite(path, shaken(one_person(36.0), 25))
    yield running
    running.close()


def asker(site: RestartingSite) -> Callable[..., Any]:
    token = token_of(site.settings)

    def ask(path: str, method: str = "GET") -> Any:
        url = f"{site.settings.web.url}{path}"
        try:
            answer = httpx.request(method, url, headers={"Authorization": f"Bearer {token}"})
            return answer.json() if answer.is_success else None
        except httpx.HTTPError:  # it is starting again
            return None

    return ask


def threshold(ask: Callable[..., Any]) -> float | None:
    cameras = ask("/api/cameras")
    return cameras[0]["threshold"] if cameras else None


def test_a_site_learns_alerts_and_learns_again_when_somebody_asks(
    site: RestartingSite, chromium: Browser
) -> None:
    ask = asker(site)
    wait_until(lambda: threshold(ask) is not None, 180.0)  # it has learned and started again
    assert site.starts == 2
    (camera,) = ask("/api/cameras")
    assert camera["limit"] == "Learning what is usual: expect two or three alerts more."
    wait_until(lambda: bool((ask("/api/events?open=false") or {}).get("events")), 120.0)
    with new_page(chromium) as page:
        log_in(page, site.settings.web.url, token_of(site.settings))
        expect(page.locator("#learning")).to_contain_text("They use up the budget")
        expect(page.locator(".limit")).to_contain_text("Learning what is usual")
        page.locator("#list li[data-open=false] a").first.click()
        expect(page.locator("#event")).to_be_visible()
        page.keyboard.press("r")  # this was right
        expect(page.locator("#precision")).to_contain_text("yard")
        assert violations(page) == []
    assert ask("/api/learning/fit", "POST") is not None
    wait_until(lambda: len((ask("/api/learning") or {}).get("models", [])) == 2, 180.0)
    new, old = ask("/api/learning")["models"]
    assert (new["is_current"], old["is_current"]) == (True, False)
    assert "alerts marked as right would come again" in new["changed"]
    wait_until(lambda: site.starts == 3, 60.0)
