"""Make the pictures of the page of a site: the wall, an event, a phone.

A site with four cameras plays parts of the bundled scene; Chromium logs in by the link that the
site prints, and takes the pictures when somebody falls. Nothing is drawn by hand. It takes two
minutes: python -m studies page-pictures [DIRECTORY]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stepvad.formats import read_clip, write_clip
from stepvad.intake import demo
from stepvad.poses import Clip, Track
from tests.browser import Page, browser

ROOT = Path(__file__).absolute().parents[1]
CAMERAS = {"yard": 0, "hall": 66, "dock": 48, "roof": 80}
"""Where in the scene each camera begins, in seconds."""
ENDING, ENDING_S = "roof", 2
"""A camera whose poses end, and after how many seconds; the others play on."""
ZONES = {
    "yard": '"gate" = [[0.0, 0.3], [0.3, 0.3], [0.3, 0.95], [0.0, 0.95]]',
    "hall": '"stairs" = [[0.55, 0.2], [0.95, 0.2], [0.95, 0.9], [0.55, 0.9]]',
}
LINK_S, STOP_S = 60.0, 30.0
"""How long to wait for the link, and for the site to stop."""
EVENTS = "document.querySelectorAll('#list li').length"
ONGOING = "document.getElementById('going').textContent !== ''"
FALL = """[...document.querySelectorAll('#list li')]
  .find(row => /leaning over/.test(row.textContent) && !/ongoing/.test(row.textContent))"""
AT_THE_PEAK = "/[^\\d]0\\.[1-3] s before/.test(document.getElementById('event').textContent)"
LINK = re.compile(r"open (http://127\.0\.0\.1:\S+) to log in")


def rolled(clip: Clip, first: int) -> Clip:
    """The clip from a frame on, its start moved to the end."""
    tracks: list[Track] = []
    for track in clip.tracks:
        for early in (True, False):
            kept = (track.frames < first) == early
            moved = track.frames[kept] - first + (clip.n_frames if early else 0)
            if kept.any():
                tracks.append(
                    Track(len(tracks) + 1, moved, track.keypoints[kept], track.confidence[kept])
                )
    return Clip(clip.name, clip.fps, clip.n_frames, tuple(tracks), clip.skeleton)


def beginning(clip: Clip) -> Clip:
    """What the camera plays whose poses end."""
    n_frames = round(ENDING_S * demo.RATE)
    tracks = [
        Track(track.id, track.frames[kept], track.keypoints[kept], track.confidence[kept])
        for track in clip.tracks
        if (kept := track.frames < n_frames).any()
    ]
    return Clip(clip.name, clip.fps, n_frames, tuple(tracks), clip.skeleton)


def write_site(directory: Path) -> Path:
    """Settings of a site, with the poses that its cameras play."""
    scene, lines = read_clip(demo.POSES), [f'name = "mill"\ndata = "data"\nmodel = "{demo.MODEL}"']
    for name, second in CAMERAS.items():
        clip = rolled(scene, round(second * demo.RATE))
        loop = name != ENDING
        write_clip(clip if loop else beginning(clip), directory / f"{name}.parquet")
        lines.append(f'[[cameras]]\nname = "{name}"\nurl = "{name}.parquet"\nrate = {demo.RATE}')
        lines.append(f"loop = {str(loop).lower()}")
        lines.append(f"zones = {{{ZONES[name]}}}" if name in ZONES else "")
    path = directory / "site.toml"
    path.write_text("\n".join([*lines, "[web]", "port = 0", ""]), encoding="utf-8")
    return path


@contextmanager
def running(settings: Path) -> Iterator[str]:
    """The site, until the block ends; gives the link that logs in."""
    command = [sys.executable, "-m", "stepvad", "watch", str(settings)]
    log = settings.with_name("log.txt")
    with log.open("w") as out:
        site = subprocess.Popen(command, cwd=settings.parent, stdout=out, stderr=out)
    try:
        until = time.monotonic() + LINK_S
        while not (found := LINK.search(log.read_text())):
            if time.monotonic() > until or site.poll() is not None:
                sys.exit(f"expected a link in what the site says, got {log.read_text()}")
            time.sleep(0.1)
        yield found[1]
    finally:
        site.terminate()
        try:
            site.wait(STOP_S)
        except subprocess.TimeoutExpired:
            site.kill()
            site.wait()


def show(page: Page, *, width: int, height: int, scheme: str) -> None:
    """The page at a size, light or dark."""
    page.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    page.call("Emulation.setDeviceMetricsOverride", **size)


def main(arguments: Sequence[str] | None = None) -> None:
    """Take the three pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    own = ROOT / "docs" / "images"
    parser.add_argument("directory", metavar="DIRECTORY", nargs="?", type=Path, default=own)
    given = parser.parse_args(arguments)
    images = given.directory
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        with running(write_site(scratch)) as link, browser(scratch / "profile") as page:
            show(page, width=1280, height=900, scheme="dark")
            page.call("Page.navigate", url=link)
            page.wait("document.querySelectorAll('form').length === 2")
            page.run("[...document.querySelectorAll('button')].at(-1).click()")  # no account
            page.wait(f"{EVENTS} >= 4")
            page.wait(f"{EVENTS} >= 7 && {ONGOING}")
            page.picture(images / "the-page.png", whole=False)
            show(page, width=390, height=844, scheme="light")
            page.wait(f"!({ONGOING})")
            page.wait(ONGOING)
            page.picture(images / "the-page-phone.png", whole=False)
            show(page, width=1280, height=900, scheme="light")
            page.run(f"{FALL}.firstElementChild.click()")
            page.wait(AT_THE_PEAK)
            page.picture(images / "the-page-event.png", whole=False)
