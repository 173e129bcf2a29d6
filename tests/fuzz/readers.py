"""Every reader of something that came from outside, by name."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from stepvad.archive.scorefile import read_facts
from stepvad.archive.scoring import Job, ShardTask, check_shard, read_manifest, score_shard
from stepvad.archive.storage import POSE_SUFFIX, ArchiveShard, Directory
from stepvad.codec import decode
from stepvad.config import Compute, Config
from stepvad.detector import Detector
from stepvad.errors import StepvadError
from stepvad.evaluation import baselines
from stepvad.events.calibration import Calibration, read_calibration, write_calibration
from stepvad.fleet import poses, registry
from stepvad.fleet.settings import load as load_fleet
from stepvad.formats import labels, read_clips, trajectories
from stepvad.formats.labels import FrameLabels, attach_classes
from stepvad.model import modelfile
from stepvad.model.training import TrainingSet, TrainingState, load_checkpoint
from stepvad.poses import Clip
from stepvad.site.service import limited_memory
from stepvad.site.settings.file import load
from stepvad.site.store.backup import restore
from stepvad.video.extract import Parts
from tests.formats.examples import check_clip
from tests.fuzz.seeds import CONFIG, V, clip

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


class RefusalError(Exception):
    """A reader that says no without raising anything."""


def _model(path: Path, shared: Path) -> None:
    fitted = baselines.load(path)
    if fitted.skeleton.V == V:
        fitted.score(clip(n=8))


def _checkpoint(path: Path, shared: Path) -> None:
    config = Config(**(asdict(CONFIG) | {"max_steps": None, "epochs": 2}))
    pi_x = np.zeros((64, 4), np.float32)
    data = TrainingSet(64, lambda rows: (pi_x[rows], np.ones(len(rows), np.float32)), "points")
    load_checkpoint(
        TrainingState.start(config, Compute(), data.n_steps(config)), data, config, path
    )


def _calibration(path: Path, shared: Path) -> None:
    made = read_calibration(path)
    made.rules_of("yard")
    # what is in the file lowers scores, or is of another model
    detector = Detector.load(shared / "model.safetensors")
    windows = detector.score(clip(n=8)).windows
    lowered = made.excuse(detector, "yard").in_clip(clip(n=8), windows)
    assert (lowered.A <= windows.A).all()
    str(made.threshold.words)
    Calibration.from_ledgers(made.ledgers, model_sha256="", alerts_per_day=1.0)
    write_calibration(made, path)


def _check_clips(clips: Iterable[Clip]) -> None:
    for one in clips:
        check_clip(one)


def _intervals(path: Path, shared: Path) -> None:
    root = path.parent / "root"
    (root / "gt").mkdir(parents=True, exist_ok=True)
    shutil.copy(path, root / "gt" / "abnormal_scene_1_scenario_1_tracks.txt")
    labels.ubnormal_validation(root, {"abnormal_scene_1_scenario_1": 10})


def _classes(path: Path, shared: Path) -> None:
    truth = FrameLabels.all_counted(np.ones(20, np.bool_))
    attach_classes({"a": truth, "01_0002": truth}, path)


def _trajectories(path: Path, shared: Path) -> None:
    directory = path.parent / "clips" / "01"
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, directory / "0001.csv")
    _check_clips(trajectories.read(directory.parent, fps=25.0))


def _archive_poses(path: Path, shared: Path) -> None:
    model = shared / "model.safetensors"
    place = Directory.at(str(path.parent))
    files = [file for file in place.files(POSE_SUFFIX) if file.name == path.name]
    job = Job(
        poses=place,
        scores=Directory.at(str(path.parent / "scored")),
        model=model,
        model_sha256=modelfile.sha256(model),
        engine="onnxruntime",
    )
    task = ShardTask(job, ArchiveShard(tuple(files)))
    outcome = score_shard(task)
    check_shard(task)
    if outcome.failed:
        raise RefusalError(str(outcome.failed))


def _archive_scores(path: Path, shared: Path) -> None:
    with path.open("rb") as file:
        read_facts(file, path.name)


def _archive_manifest(path: Path, shared: Path) -> None:
    root = path.parent / "manifests"
    root.mkdir(exist_ok=True)
    shutil.copy(path, root / "_manifest.json")
    read_manifest(Directory.at(str(root)))


def _backup(path: Path, shared: Path) -> None:
    onto = path.parent / "restored"
    shutil.rmtree(onto, ignore_errors=True)
    restore(path, onto / "events.db")


def _parts(path: Path, shared: Path) -> None:
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
    "pose JSON": lambda path, _: _check_clips(read_clips(path)),
    "pose Parquet": lambda path, _: _check_clips(read_clips(path)),
    "archive poses": _archive_poses,
    "archive scores": _archive_scores,
    "archive manifest": _archive_manifest,
    "label mask": lambda path, _: labels.read_mask(path),
    "label intervals": _intervals,
    "label classes": _classes,
    "trajectories": _trajectories,
    "extracted parts": _parts,
    "site settings": lambda path, _: load(path),
    "fleet settings": lambda path, _: load_fleet(path),
    "backup": _backup,
    "fleet poses": lambda path, _: poses.decode(path.read_bytes()),
    "fleet registry": lambda path, _: decode(registry.Rollout, path.read_bytes(), "rollout"),
}
