"""Every reader of something that came from outside, by name."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from stepvad.errors import StepvadError
from stepvad.fleet.subjects import Subjects
from stepvad.supervision.limits import limited_memory

SUBJECTS = Subjects(shards=1)
MEMORY = 1 << 30
"""Bytes by which reading a small file may not grow memory."""
SECONDS = 10.0
"""Of a processor, that reading a small file may not take."""

Reader = Callable[[Path, Path], object]
"""Reads a file, given a directory with whole files that belong to it."""


def accepts(reader: str, path: Path, shared: Path) -> bool:
    """Whether a reader accepts a file, or refuses it in words; within the limits."""
    began, is_accepted = time.process_time(), True
    with limited_memory(MEMORY):
        try:
            READERS[reader](path, shared)
        except (StepvadError, RefusalError):
            is_accepted = False
    assert time.process_time() - began < SECONDS
    return is_accepted


def _model(path: Path, shared: Path) -> None:
    from stepvad.evaluation import baselines
    from tests.fuzz.seeds import V, clip

    fitted = baselines.load(path)
    if fitted.skeleton.V == V:
        fitted.score(clip(n=8))


def _checkpoint(path: Path, shared: Path) -> None:
    from dataclasses import asdict

    import numpy as np

    from stepvad.config import Compute, Config
    from stepvad.model.training import TrainingSet, TrainingState, load_checkpoint
    from tests.fuzz.seeds import CONFIG

    config = Config(**(asdict(CONFIG) | {"max_steps": None, "epochs": 2}))
    pi_x = np.zeros((64, 4), np.float32)
    data = TrainingSet(64, lambda rows: (pi_x[rows], np.ones(len(rows), np.float32)), "points")
    load_checkpoint(
        TrainingState.start(config, Compute(), data.n_steps(config)), data, config, path
    )


def _calibration(path: Path, shared: Path) -> None:
    from stepvad.calibration import file

    made = file.read(path)
    made.rules_of("yard")
    str(made.threshold.words)
    file.write(made, path)


def _poses(path: Path, shared: Path) -> None:
    from stepvad.formats import read_clips

    for clip in read_clips(path):
        clip.persons_per_frame()


def _mask(path: Path, shared: Path) -> None:
    from stepvad.formats import labels

    labels.of_file(path)


def _intervals(path: Path, shared: Path) -> None:
    from stepvad.formats import labels

    root = path.parent / "root"
    (root / "gt").mkdir(parents=True, exist_ok=True)
    shutil.copy(path, root / "gt" / "abnormal_scene_1_scenario_1_tracks.txt")
    labels.ubnormal_validation(root, {"abnormal_scene_1_scenario_1": 10})


def _classes(path: Path, shared: Path) -> None:
    import numpy as np

    from stepvad.formats.classes import attach
    from stepvad.formats.labels import FrameLabels

    truth = FrameLabels.all_counted(np.ones(20, np.bool_))
    attach({"a": truth, "01_0002": FrameLabels.all_counted(np.ones(20, np.bool_))}, path)


def _boxes(path: Path, shared: Path) -> None:
    from stepvad.evaluation import boxtracks

    for _ in boxtracks.read(path, part="train"):
        pass
    boxtracks.labels(path)


def _trajectories(path: Path, shared: Path) -> None:
    from stepvad.formats import trajectories

    directory = path.parent / "clips" / "01"
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, directory / "0001.csv")
    for clip in trajectories.read(directory.parent, fps=25.0):
        clip.persons_per_frame()


def _packed_trajectories(path: Path, shared: Path) -> None:
    from stepvad.evaluation import humanrelated

    for clip in humanrelated.read(path, "hr-avenue", part="train"):
        clip.persons_per_frame()
    humanrelated.labels(path, "hr-avenue", split="hr")


def _archive_poses(path: Path, shared: Path) -> None:
    from stepvad.archive import shards
    from stepvad.archive.layout import SUFFIX, ArchiveShard
    from stepvad.archive.storage import Directory
    from stepvad.model import modelfile

    model = shared / "model.safetensors"
    place = Directory.at(str(path.parent))
    files = [file for file in place.files(SUFFIX) if file.name == path.name]
    job = shards.Job(
        poses=place,
        scores=Directory.at(str(path.parent / "scored")),
        model=model,
        model_sha256=modelfile.sha256(model),
        engine="onnxruntime",
    )
    task = shards.ShardTask(job, ArchiveShard(tuple(files)))
    outcome = shards.score(task)
    shards.look(task)
    if outcome.failed:
        raise RefusalError(str(outcome.failed))


class RefusalError(Exception):
    """A reader that says no without raising anything."""


def _archive_scores(path: Path, _shared: Path) -> None:
    from stepvad.archive.scorefile import read_facts

    with path.open("rb") as file:
        read_facts(file, path.name)


def _archive_manifest(path: Path, _shared: Path) -> None:
    from stepvad.archive import manifest
    from stepvad.archive.storage import Directory

    root = path.parent / "manifests"
    root.mkdir(exist_ok=True)
    shutil.copy(path, root / "manifest.json")
    manifest.read(Directory.at(str(root)))


def _event_lines(path: Path, shared: Path) -> None:
    from stepvad.formats import eventlines

    eventlines.read(path)


def _site(path: Path, shared: Path) -> None:
    from stepvad.settings.file import describe, load

    describe(load(path))


def _fleet(path: Path, shared: Path) -> None:
    from stepvad.fleet.settings import load_worker

    load_worker(path)


def _backup(path: Path, shared: Path) -> None:
    from stepvad.site.store.restore import restore

    onto = path.parent / "restored"
    shutil.rmtree(onto, ignore_errors=True)
    restore(path, onto / "events.db")


def _fleet_poses(path: Path, shared: Path) -> None:
    from stepvad.fleet.wire import decode

    batch = decode(path.read_bytes())
    for frame in range(len(batch)):
        batch.poses(frame)


def _fleet_event(path: Path, shared: Path) -> None:
    from stepvad.fleet.broker.bus import Delivery
    from stepvad.fleet.event_message import change_of

    change_of(Delivery("stepvad.events.0", path.read_bytes(), 1, 0.0), site="north")


@cache
def _fleet_models() -> Any:
    from stepvad.fleet.settings import ModelSettings
    from stepvad.fleet.worker.models import FleetModels
    from stepvad.intake import demo

    return FleetModels.load([ModelSettings(model=Path(demo.MODEL), threshold=0.01)])


def shard() -> Any:
    """A shard of a worker without a broker."""
    from stepvad.fleet.worker.scoring import BatchScorer
    from stepvad.fleet.worker.shard import Pace, Shard

    return Shard(SUBJECTS.place(0), SUBJECTS, _fleet_models(), BatchScorer(), Pace())


def _fleet_checkpoint(path: Path, shared: Path) -> None:
    from stepvad.fleet.worker.checkpoint import ShardCheckpoint

    state = ShardCheckpoint.unpack(path.read_bytes()).shard_state()
    if state is not None:
        own = shard()
        own.restore(state, 0.0)
        own.end_silent(1e6)
        own.state().to_json()


def _parts(path: Path, shared: Path) -> None:
    from stepvad.video.parts import Parts

    place = path.parent / "parts"
    shutil.rmtree(place, ignore_errors=True)
    with Parts(place, {"detector": "x"}):
        pass
    shutil.copy(path, place / "000000.npz")
    with Parts(place, {"detector": "x"}) as parts:
        if not list(parts):
            raise RefusalError("no frame")


READERS: dict[str, Reader] = {
    "model": _model,
    "training checkpoint": _checkpoint,
    "calibration": _calibration,
    "pose JSON": _poses,
    "pose Parquet": _poses,
    "archive poses": _archive_poses,
    "archive scores": _archive_scores,
    "archive manifest": _archive_manifest,
    "label mask": _mask,
    "label intervals": _intervals,
    "label classes": _classes,
    "box tracks": _boxes,
    "trajectories": _trajectories,
    "packed trajectories": _packed_trajectories,
    "extracted parts": _parts,
    "event lines": _event_lines,
    "site settings": _site,
    "fleet settings": _fleet,
    "backup": _backup,
    "fleet poses": _fleet_poses,
    "fleet event": _fleet_event,
    "fleet checkpoint": _fleet_checkpoint,
}
