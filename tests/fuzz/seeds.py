"""Whole files of every kind, small, from which damaged ones are made."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from stepvad.archive import scoring
from stepvad.codec import encode
from stepvad.config import Checkpoint, Config
from stepvad.errors import silent
from stepvad.evaluation import baselines
from stepvad.events.calibration import Calibration, write_calibration
from stepvad.events.drift import BlockStats
from stepvad.events.exceptions import MotionException
from stepvad.events.ledger import LedgerEntry
from stepvad.fleet import poses, registry
from stepvad.formats import write_clip, write_clips
from stepvad.model.training import TrainingSet, train
from stepvad.people import Boxes, People
from stepvad.poses import Clip, Pose, Track
from stepvad.site.store.events import Store
from stepvad.skeletons import of_size
from stepvad.video.extract import FoundPeople, Parts
from tests.evaluation.layouts import avenue
from tests.pages import ROOT
from tests.site.records import SINKS, fill

V = 3
CONFIG = Config(T=2, K=4, width=8, blocks=2, sigma_width=4, L=3, max_steps=2)
FPS = 10.0


def make(directory: Path) -> None:
    """Write them all, one directory for each reader."""
    (directory / "shared").mkdir(parents=True)
    _models(directory)
    _poses(directory)
    _labels(directory)
    _texts(directory)
    _archive(directory)
    _store(directory)
    _fleet(directory)
    _own_results(directory)


def clip(name: str = "walk", *, n: int = 60, joints: int = V, seed: int = 0) -> Clip:
    """Somebody who walks at random, and somebody who comes later."""
    rng = np.random.default_rng(seed)
    tracks = []
    for id_, first in ((2, 0), (7, n // 2)):
        walk = 100 + rng.normal(size=(n - first, joints, 2)).cumsum(axis=0).astype(np.float32)
        sure = rng.uniform(0.5, 1, (n - first, joints)).astype(np.float32)
        tracks.append(Track(id_, np.arange(first, n), walk, sure))
    return Clip(name, FPS, n, tuple(tracks), of_size(joints))


def _put(directory: Path, reader: str, name: str, data: bytes) -> None:
    (directory / reader).mkdir(parents=True, exist_ok=True)
    (directory / reader / name).write_bytes(data)


def _models(directory: Path) -> None:
    places = {
        name: directory / "model" / f"{name}.safetensors" for name in ("step", "knn", "mahalanobis")
    }
    (directory / "model").mkdir()
    for method, path in places.items():
        baselines.fit(method, [clip()], CONFIG).save(path)  # type: ignore[arg-type]
    whole = places["step"].read_bytes()
    (directory / "shared" / "model.safetensors").write_bytes(whole)
    pi_x = np.random.default_rng(0).standard_normal((64, 4), dtype=np.float32)
    points = TrainingSet(64, lambda rows: (pi_x[rows], np.ones(len(rows), np.float32)), "points")
    (directory / "training checkpoint").mkdir()
    config = replace(CONFIG, max_steps=None, epochs=2)
    checkpoint = directory / "training checkpoint" / "a.safetensors"
    train(points, config, report=silent, checkpoint=Checkpoint(checkpoint))
    entry = LedgerEntry(begin=1.7e9, watched_s=3600.0, quiet=(5.0, 2.5, 1.0), alerts=(7.5,))
    made = Calibration.from_ledgers(
        {"yard": [entry], "door": [entry]}, model_sha256="0" * 64, alerts_per_day=20
    )
    stats = BlockStats(("score", "confidence"), np.ones((3, 2)))
    rows = tuple(map(tuple, np.round(pi_x[:3].astype(float), 3).tolist()))
    excused = MotionException(
        event="e1", camera="yard", at=1.7e9, place=(90.0, 80.0, 120.0, 130.0), points=(rows,)
    )
    made = replace(made, block_stats={"yard": stats}, rates={"yard": (FPS,)}, exceptions=(excused,))
    (directory / "calibration").mkdir()
    write_calibration(made, directory / "calibration" / "a.json")


def _poses(directory: Path) -> None:
    person = {
        "2": {
            "0001": {"keypoints": [1.5, 2, 0.9] * V, "scores": 2.5},
            "2": {"keypoints": [1, 2, 0.5] * V},
        }
    }
    results = [
        {
            "image_id": f"{frame:06}.jpg",
            "category_id": 1,
            "keypoints": [1, 2.5, 0.9] * V,
            "track_id": 1,
        }
        for frame in range(3)
    ]
    _put(directory, "pose JSON", "alphapose.json", json.dumps(person).encode())
    _put(directory, "pose JSON", "coco.json", json.dumps(results).encode())
    for reader in ("pose Parquet", "archive poses"):
        (directory / reader).mkdir(exist_ok=True)
        write_clip(clip(), directory / reader / "one.parquet")
    two = [clip("a", n=30), clip("b", n=20, seed=1)]
    write_clips(two, directory / "pose Parquet" / "two.parquet")
    write_clip(clip(joints=17), directory / "pose Parquet" / "coco17.parquet")


def _labels(directory: Path) -> None:
    mask = io.BytesIO()
    np.save(mask, np.array([0, 1, 1, 0] * 10, np.uint8))
    _put(directory, "label mask", "a.npy", mask.getvalue())
    _put(
        directory,
        "label intervals",
        "abnormal_scene_1_scenario_1_tracks.txt",
        b"1,0,450\n2,17,4.5e2\n",
    )
    _put(
        directory,
        "label classes",
        "classes.csv",
        b"clip,class,first,last\na,fall,1,2\n01_0002,run,3,9\n",
    )
    _trajectories(directory)


def _trajectories(directory: Path) -> None:
    release = avenue()
    lines = io.BytesIO()
    np.savetxt(lines, release.train["01"][1][:5], fmt="%g", delimiter=",")
    _put(directory, "trajectories", "0001.csv", lines.getvalue())


def _texts(directory: Path) -> None:
    for reader, path in (("site", "site.toml"), ("fleet", "fleet/fleet.toml")):
        _put(directory, f"{reader} settings", "a.toml", (ROOT / "deploy" / path).read_bytes())


def _archive(directory: Path) -> None:
    write_clip(clip(), directory / "shared" / "poses.parquet")
    poses = directory / "shared" / "poses" / "camera=yard"
    poses.mkdir(parents=True)
    write_clip(clip(), poses / "one.parquet")
    scores = directory / "shared" / "scores"
    scoring.score(str(poses.parent), str(scores), directory / "shared" / "model.safetensors")
    whole = (scores / "camera=yard" / "one.parquet").read_bytes()
    _put(directory, "archive scores", "one.parquet", whole)
    _put(directory, "archive manifest", "_manifest.json", (scores / "_manifest.json").read_bytes())


def _store(directory: Path) -> None:
    store = Store(directory / "shared" / "events.db", SINKS, clock=lambda: 10.0)
    fill(store, 5)
    (directory / "backup").mkdir()
    store.backup(directory / "backup" / "a.db")
    store.close()


def _fleet(directory: Path) -> None:
    rng = np.random.default_rng(0)
    people = [Pose(3, rng.uniform(0, 99, (17, 2)).astype(np.float32), np.ones(17, np.float32))]
    for name, as_json in (("a.msgpack", False), ("a.json", True)):
        data = poses.encode(people, epoch=7, frame=3, rate=FPS, size=(640, 480), as_json=as_json)
        _put(directory, "fleet poses", name, data)
    file = registry.File(sha256="0" * 64, bytes=9, name="model.safetensors")
    run = registry.Run(model=file, settings="[retention]\nevents_days = 9\n")
    tried = registry.Stage(run=run, percent=10, since=1.0)
    _put(directory, "fleet registry", "a.json", encode(registry.Rollout(run=run, next=tried)))


def _own_results(directory: Path) -> None:
    parts = directory / "extracted parts"
    rng = np.random.default_rng(0)
    with Parts(parts, {"detector": "x"}) as made:
        for number in range(5):
            boxes = Boxes(rng.uniform(0, 99, (2, 4)).astype(np.float32), np.ones(2, np.float32))
            people = People(
                boxes,
                rng.uniform(0, 99, (2, 17, 2)).astype(np.float32),
                np.ones((2, 17), np.float32),
            )
            made.append(FoundPeople(number, number / 10, (640, 480), people))
    (parts / "settings.json").unlink()
