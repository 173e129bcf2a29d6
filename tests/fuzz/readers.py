"""Every reader of something that came from outside, by name."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from stepvad.fleet.subjects import Subjects
from tests.fuzz.mutation import (
    Mutator,
    by_bytes,
    by_json,
    by_json_lines,
    by_msgpack,
    by_npy,
    by_npz,
    by_safetensors,
    by_text,
    by_toml,
)
from tests.fuzz.tables import by_parquet

SUBJECTS = Subjects(shards=1)
SPIN_S = 0.5
"""Of a processor, that a reader takes which is too slow."""


@dataclass(frozen=True, slots=True)
class Reader:
    """How a kind of file is damaged, and what reads it."""

    read: Callable[[Path, Path], object]
    """The file, and a directory with whole files that belong to it."""
    mutators: dict[str, Mutator]
    """By the suffix of the file."""


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
    place.mkdir()
    (place / "settings.json").write_text('{"origin": {"detector": "x"}}')
    shutil.copy(path, place / "000000.npz")
    with Parts(place, {"detector": "x"}) as parts:
        if not list(parts):
            raise RefusalError("no frame")


@cache
def _command() -> Any:
    """The whole command line; typer would build it for every file."""
    from typer.main import get_command

    from stepvad.cli import app

    return get_command(app)


def _cli(*words: str) -> Callable[[Path, Path], None]:
    def run(path: Path, shared: Path) -> None:
        output = str(path.parent / "scores.csv")
        places = {"MODEL": str(shared / "model.safetensors"), "PATH": str(path), "CSV": output}
        _command()([places.get(word, word) for word in words], standalone_mode=False)

    return run


_BYTES: dict[str, Mutator] = {"": by_bytes}
_PARQUET: dict[str, Mutator] = {".parquet": by_parquet, ".json": by_json}
READERS: dict[str, Reader] = {
    "model": Reader(_model, {".safetensors": by_safetensors}),
    "training checkpoint": Reader(_checkpoint, {".safetensors": by_safetensors}),
    "calibration": Reader(_calibration, {".json": by_json}),
    "pose JSON": Reader(_poses, {".json": by_json}),
    "pose Parquet": Reader(_poses, _PARQUET),
    "archive poses": Reader(_archive_poses, _PARQUET),
    "archive scores": Reader(_archive_scores, _PARQUET),
    "archive manifest": Reader(_archive_manifest, {".json": by_json}),
    "label mask": Reader(_mask, {".npy": by_npy}),
    "label intervals": Reader(_intervals, {".txt": by_text}),
    "label classes": Reader(_classes, {".csv": by_text}),
    "box tracks": Reader(_boxes, {".npz": by_npz}),
    "trajectories": Reader(_trajectories, {".csv": by_text}),
    "packed trajectories": Reader(_packed_trajectories, {".npz": by_npz}),
    "extracted parts": Reader(_parts, {".npz": by_npz}),
    "event lines": Reader(_event_lines, {".jsonl": by_json_lines}),
    "site settings": Reader(_site, {".toml": by_toml}),
    "fleet settings": Reader(_fleet, {".toml": by_toml}),
    "backup": Reader(_backup, {".db": by_bytes}),
    "fleet poses": Reader(_fleet_poses, {".msgpack": by_msgpack}),
    "fleet event": Reader(_fleet_event, {".json": by_json}),
    "fleet checkpoint": Reader(_fleet_checkpoint, {".msgpack": by_msgpack}),
    "cli inspect": Reader(_cli("inspect", "PATH"), _PARQUET),
    "cli inspect model": Reader(_cli("inspect", "PATH"), {".safetensors": by_safetensors}),
    "cli score": Reader(_cli("score", "MODEL", "PATH", "-o", "CSV"), _PARQUET),
}


def _swallow(path: Path, shared: Path) -> None:
    from stepvad.errors import DataError

    try:
        bytearray(1 << 60)
    except MemoryError as error:
        raise DataError("too large") from error


def _spin(path: Path, shared: Path) -> None:
    begun = time.process_time()
    while path.read_bytes() == b"fault" and time.process_time() - begun < SPIN_S:
        pass


def _fail(fault: Callable[[], object]) -> Callable[[Path, Path], None]:
    """A reader that reads whole files, and shows a fault with others."""

    def read(path: Path, shared: Path) -> None:
        if path.read_bytes() == b"fault":
            fault()

    return read


FAULTY: dict[str, Reader] = {
    "traceback": Reader(_fail(lambda: [][0]), {}),
    "crash": Reader(_fail(os.abort), {}),
    "memory": Reader(_fail(lambda: len(bytes(3 << 29))), {}),
    "memory refused": Reader(_fail(lambda: _swallow(Path(), Path())), {}),
    "time": Reader(_spin, {}),
}
"""Readers as nobody wants them, to see that the gate notices."""


def mutated(reader: str, seed: Path, random: Any) -> bytes:
    """A damaged copy of a whole file; by its bytes, if values cannot be what they should be."""
    data = seed.read_bytes()
    try:
        return READERS[reader].mutators[seed.suffix](data, random)
    except (ArithmeticError, ValueError, TypeError, RecursionError, pa.ArrowException):
        return by_bytes(data, random)
