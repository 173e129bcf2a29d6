"""Devices that publish the poses of the bundled scene, and the events that a site makes of them.

As a program it is such a device: `python -m tests.fleet.played '{"addresses": [...], ...}'`.
"""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from stepvad.detector import Detector
from stepvad.errors import StepvadError
from stepvad.events.camera import CameraProfile, in_words
from stepvad.events.record import Record
from stepvad.events.rules import Rules
from stepvad.explain.event import explain_peak
from stepvad.fleet import poses, streams
from stepvad.fleet.connection import connected
from stepvad.formats import read_clip
from stepvad.poses import Pose
from stepvad.site import demo
from stepvad.site.scoring import Watcher, poses_of
from stepvad.site.settings.sections import BrokerSettings
from stepvad.stream import update_all
from tests.processes import ROOT

PAUSE, CALM_S = 20, 8.0
"""Frames between two turns of the scene, and seconds of an empty scene at the end."""
MISSED, NOISE = 0.05, 1.0
"""Share of poses that a device misses, and pixels by which the others are off."""
CLOSE = 1e-4
"""Another batch of windows gives other last bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What devices publish: cameras `c0` to `cN` of a site, each another part of the scene."""

    site: str
    cameras: int
    seconds: float
    """Seconds of the scene, before it is empty for `CALM_S`."""
    epoch: int
    threshold: float = 3.0
    speed: float = 2.0
    """Seconds of the scene played in a second."""

    @property
    def n_frames(self) -> int:
        return round((self.seconds + CALM_S) * demo.RATE)

    @property
    def names(self) -> list[str]:
        return [f"c{number}" for number in range(self.cameras)]

    def frames(self, camera: int) -> Iterator[list[Pose]]:
        """The people of each frame of a camera, always the same."""
        clip = read_clip(demo.POSES)
        scene = defaultdict(list)
        for frame, people in clip.by_frame():
            scene[frame] = people
        length, ids = clip.n_frames + PAUSE, max(track.id for track in clip.tracks) + 1
        rng = np.random.default_rng(camera)
        for frame in range(self.n_frames):
            turn, at = divmod(frame + 37 * camera, length)
            is_empty = frame >= self.seconds * demo.RATE
            found = []
            for pose in [] if is_empty else scene[at]:
                is_missed, off = rng.random() < MISSED, rng.normal(0, NOISE, (17, 2))
                if not is_missed:
                    joints = (pose.keypoints + off).astype(np.float32)
                    found.append(Pose(pose.track_id + turn * ids, joints, pose.confidence))
            yield found

    def messages(self, camera: int) -> Iterator[bytes]:
        """What the device of a camera publishes, every other one in JSON."""
        for frame, people in enumerate(self.frames(camera)):
            yield poses.encode(
                people,
                epoch=self.epoch,
                frame=frame,
                rate=demo.RATE,
                size=demo.SIZE,
                as_json=camera % 2 == 1,
            )

    def settings(self, addresses: Sequence[str], directory: Path) -> Path:
        """The settings of a site that watches these cameras, written to a directory."""
        path = directory / "site.toml"
        cameras = "".join(
            f'[[cameras]]\nname = "{name}"\nurl = "nats:{name}"\nrate = {demo.RATE}\n'
            f"threshold = {self.threshold}\n"
            for name in self.names
        )
        servers = json.dumps([*addresses])
        path.write_text(
            f'name = "{self.site}"\nmodel = "{demo.MODEL}"\n{cameras}'
            f"[fleet]\nservers = {servers}\n[web]\nenabled = false\n"
        )
        return path

    def events(self) -> dict[str, Record]:
        """The events that an undisturbed site makes of it, by id, with their words."""
        model, found = Detector.load(demo.MODEL, threads=1), {}
        watchers = [self._watcher(name, model) for name in self.names]
        for slot, messages in enumerate(self.rounds()):
            people = [poses.decode(one)[1] for one in messages]
            streamed = [one.stream for one in watchers]
            scored = update_all([*zip(streamed, [slot] * self.cameras, people, strict=True)])
            for watcher, seen, windows in zip(watchers, people, scored, strict=True):
                looked = watcher.looked(slot, windows)
                for kind, record in watcher.events.observe(slot, demo.SIZE, seen, windows, looked):
                    is_end = kind == "end"
                    found[record.id] = _in_words(watcher, record) if is_end else record
        return found

    def rounds(self) -> Iterator[tuple[bytes, ...]]:
        """What all devices publish, frame by frame."""
        return zip(*map(self.messages, range(self.cameras)), strict=True)

    def _watcher(self, camera: str, model: Detector) -> Watcher:
        profile = CameraProfile(
            camera=camera,
            rate=demo.RATE,
            rules=Rules(threshold=self.threshold),
            detector=model,
            model_id="",
            model_sha256="",
            zones={},
        )
        watcher = Watcher(profile, lambda: 0)
        watcher.start_connection(self.epoch / 1000, demo.RATE, self.epoch)
        return watcher


@contextmanager
def publishing(played: Played, addresses: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that publishes all frames, each until a broker has stored it; then it ends."""
    told = json.dumps({"addresses": [*addresses], **asdict(played)})
    process = subprocess.Popen([sys.executable, "-m", "tests.fleet.played", told], cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True, slots=True)
class Differences:
    """Ids of events that are missing, that nobody expected, and that are not the same."""

    lost: list[str]
    extra: list[str]
    different: list[str]

    def __bool__(self) -> bool:
        return bool(self.lost or self.extra or self.different)


def compare(expected: Mapping[str, Record], found: Mapping[str, Record]) -> Differences:
    """Compare the events of a site with those of an undisturbed one."""
    both = [id for id in expected if id in found]
    return Differences(
        [id for id in expected if id not in found],
        [id for id in found if id not in expected],
        [id for id in both if not _same(expected[id], found[id])],
    )


def _in_words(watcher: Watcher, record: Record) -> Record:
    kept = poses_of(watcher, record)
    calm = watcher.profile.rules.release * record.threshold
    try:
        peak = explain_peak(
            watcher.profile.detector, kept.clip, kept.track, kept.peak_frame, calm=calm
        )
    except StepvadError:
        return record
    return in_words(record, peak.explanation(kept.clip.rate()).summary)


def _same(one: Record, other: Record) -> bool:
    """True if two are the same but for versions, the name of the model and last bits."""
    for name in ("score", "top_score", "confidence", "seen"):
        if not math.isclose(getattr(one, name), getattr(other, name), abs_tol=CLOSE):
            return False
    if not np.allclose(one.scales, other.scales, atol=10 * CLOSE):
        return False
    facts = {name: getattr(one, name) for name in ("score", "top_score", "confidence", "seen")}
    facts |= {"scales": one.scales, "version": one.version}
    facts |= {"model_id": one.model_id, "model_sha256": one.model_sha256}
    return replace(other, **facts) == one


async def _publish(addresses: Sequence[str], played: Played) -> None:
    settings = BrokerSettings(servers=[*addresses])
    async with connected(settings, "device") as broker:
        began = time.monotonic()
        for frame, messages in enumerate(played.rounds()):
            due = began + frame / demo.RATE / played.speed
            await asyncio.sleep(max(due - time.monotonic(), 0.0))

            async def send(name: str, data: bytes) -> None:
                while True:  # as a device does that loses nothing; a message may come twice
                    try:
                        await broker.publish(streams.poses(played.site, name), data)
                        return
                    except StepvadError:
                        await asyncio.sleep(0.1)

            await asyncio.gather(*map(send, played.names, messages))


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    asyncio.run(_publish(told.pop("addresses"), Played(**told)))
