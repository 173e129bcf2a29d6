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

from playwright.sync_api import expect

from stepvad.formats import read_clip, write_clip
from stepvad.poses import Clip, Track
from stepvad.site import demo
from tests.browser import launched, new_page, resize

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
AT_THE_PEAK = re.compile(r"[^\d]0\.[1-3] s before")
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    own = ROOT / "docs" / "images"
    parser.add_argument("directory", metavar="DIRECTORY", nargs="?", type=Path, default=own)
    given = parser.parse_args(arguments)
    images = given.directory
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        with running(write_site(scratch)) as link, launched() as browser:
            page = new_page(browser, height=900, color_scheme="dark")
            page.goto(link)
            page.locator("button").last.click()  # no account
            expect(page.locator("#list li").nth(6)).to_be_visible()
            expect(page.locator("#going")).not_to_be_empty()
            page.screenshot(path=images / "the-page.png")
            page.emulate_media(color_scheme="light")
            resize(page, 390, 844)
            expect(page.locator("#going")).to_be_empty()
            expect(page.locator("#going")).not_to_be_empty()
            page.screenshot(path=images / "the-page-phone.png")
            resize(page, 1280, 900)
            fall = page.locator("#list li", has_text="leaning over", has_not_text="ongoing")
            fall.first.locator("a").click()
            expect(page.locator("#event")).to_have_text(AT_THE_PEAK)
            page.screenshot(path=images / "the-page-event.png")
