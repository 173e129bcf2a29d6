"""Poses by the million: real box tracks and motion capture, again and again in other places."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepvad import executors
from stepvad.config import Config
from stepvad.formats import read_clips, write_clip
from stepvad.model.engines import fold, weight_shapes
from stepvad.model.modelfile import Origin, write
from stepvad.model.pcspace import Moments, PCSpace
from stepvad.model.scoring import EnergyModel, Model, View
from stepvad.poses import Clip, Track
from stepvad.skeletons import COCO17, modelled
from stepvad.windows.body import Repairs
from stepvad.windows.runs import cut
from stepvad.windows.views import ViewSettings
from studies import unpack
from studies.mocap.bodies import coco17

Kind = Literal["boxes", "mocap"]
KINDS: tuple[Kind, ...] = ("boxes", "mocap")
FPS, FRAMES = 10.0, 1200
"""Of one file: two minutes."""
TRACKS = 32
"""Of one file; most are of some hundred frames."""
FILES = 30
"""Files of one camera and date: an hour."""
CAMERAS = 4


@dataclass(frozen=True, slots=True)
class Hour:
    """The files of one camera and date, to be written."""

    kind: Kind
    root: Path
    data: Path
    number: int
    seed: int


@lru_cache(maxsize=2)
def footage(kind: Kind, data: Path) -> list[NDArray[np.float32]]:
    """Tracks of the public data in pixels, `(n, V, 2)` each, at most a file long."""
    if kind == "boxes":
        clips = unpack.boxes(unpack.read(data / "ShanghaiTech-boxes" / "tracks.npz"), "train")
        tracks = [np.asarray(track.keypoints) for clip in clips for track in clip.tracks]
    else:
        tracks = [*_seen_from_the_side(data / "CMU-mocap" / "mocap_30fps_15j.npz")]
    parts = (track[at : at + FRAMES] for track in tracks for at in range(0, len(track), FRAMES))
    return [part for part in parts if len(part) >= 24]


def _seen_from_the_side(file: Path) -> Iterator[NDArray[np.float32]]:
    """Motion capture at 10 frames a second through a camera far away."""
    archive = np.load(file)
    for joints in np.split(archive["xyz"], np.cumsum(archive["lengths"])[:-1]):
        points = coco17(joints[::3].astype(np.float64))
        if np.isfinite(points).all():
            pixels = np.stack([points[..., 0], -points[..., 1]], axis=-1) * 10
            yield (pixels - pixels[0].mean(axis=0) + 500).astype(np.float32)


def write_hour(task: Hour) -> int:
    """Write the files of one camera and date, each other than all others; how many windows."""
    rng = np.random.default_rng([task.seed, KINDS.index(task.kind), task.number])
    tracks = footage(task.kind, task.data)
    day, camera = divmod(task.number, CAMERAS)
    date = np.datetime64("2024-01-01") + day
    place = task.root / f"date={date}" / f"camera=camera-{camera}"
    place.mkdir(parents=True, exist_ok=True)
    windows = 0
    for number in range(FILES):
        people = [_changed(rng, tracks[rng.integers(len(tracks))]) for _ in range(TRACKS)]
        made = tuple(
            Track(
                at,
                np.arange(len(track)),
                track,
                rng.uniform(0.6, 1, track.shape[:2]).astype(np.float32),
            )
            for at, track in enumerate(people)
        )
        windows += sum(max(len(track) - Config().T + 1, 0) for track in made)
        skeleton = unpack.BOX if task.kind == "boxes" else COCO17
        name = f"camera-{camera}-{date}-{number:03}"
        write_clip(Clip(name, FPS, FRAMES, made, skeleton), place / f"{name}.parquet")
    return windows


def _changed(rng: np.random.Generator, track: NDArray[np.float32]) -> NDArray[np.float32]:
    """A track elsewhere, in another size, and every second time mirrored."""
    size = rng.uniform(0.5, 2.0) * np.array([rng.choice([-1, 1]), 1])
    shift = rng.uniform(-300, 300, 2) + np.array([2000, 0])
    return (track * size + shift).astype(np.float32)


def write_poses(root: Path, first: Hour, n_windows: int, jobs: int) -> int:
    """Hours of poses like the first until their windows are enough; how many there are.

    What an earlier call wrote is kept, if it was asked for the same.
    """
    note, asked = root.with_suffix(".json"), [n_windows, first.seed]
    if note.exists() and (found := json.loads(note.read_text()))[:2] == asked:
        return int(found[2])
    shutil.rmtree(root, ignore_errors=True)
    n = n_first = write_hour(first)
    written = 1
    while n < n_windows:
        hours = range(written, written + max(round((n_windows - n) / n_first), 1))
        tasks = [replace(first, number=number) for number in hours]
        n += sum(executors.run(write_hour, tasks, jobs=jobs, executor="processes"))
        written = hours.stop
    note.write_text(json.dumps([*asked, n]))
    return n


def write_model(path: Path, poses: Path, width: int) -> None:
    """Random weights behind the components of some of these windows."""
    config = Config(width=width)
    clip = next(iter(read_clips(next(iter(sorted(poses.rglob("*.parquet")))))))
    skeleton = modelled(clip.skeleton)
    x = next(iter(cut(clip, [ViewSettings(config)], skeleton)[0].batches(8192))).x
    size = x[0].size
    kept = min(config.K, size // 4)
    config = Config(width=width, K=kept, fps=clip.fps)
    space = PCSpace.fit(Moments.measure([x.reshape(len(x), size)], size), kept)
    rng = np.random.default_rng(0)
    weights = {
        name: (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        for name, shape in weight_shapes(config).items()
    }
    folded = fold(weights, config)
    z = space.project(x)[:1024]
    energies = folded.energies(z)
    origin = Origin("0", "0", 1, len(x), 0, Repairs())
    statistics = energies.mean(axis=0, dtype=np.float64), energies.var(axis=0, dtype=np.float64)
    write([View(config, Model(space, EnergyModel(weights, *statistics)))], skeleton, origin, path)
