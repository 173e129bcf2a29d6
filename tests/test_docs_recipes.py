"""The recipes of the documentation run, on people whom other packages found."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import stepvad
from stepvad import Clip, Config
from stepvad.evaluation import walkers
from stepvad.skeletons import COCO17, MEDIAPIPE33, STEP18
from tests.pages import ROOT, blocks, run_here

RECIPES = ROOT / "docs" / "guides" / "recipes.md"


def test_there_are_twelve_short_recipes() -> None:
    titles = re.findall("^## (.+)$", RECIPES.read_text("utf-8"), re.MULTILINE)
    assert len(titles) == 12
    for block in blocks(RECIPES):
        assert len([line for line in block.text.splitlines() if line.strip()]) < 10, block


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Telemetry")
def test_the_recipes_run(tmp_path: Path) -> None:
    walkers.write_dataset(tmp_path / "people", seed=4, train_clips=4, test_clips=3, seconds=12.0)
    config = Config(K=12, width=16, max_steps=8)
    train = list(stepvad.read_clips(tmp_path / "people" / "pose" / "train", fps=25))
    stepvad.Detector.fit(train, config).save(tmp_path / "model.safetensors")
    stepvad.write_clips(train, tmp_path / "walks.parquet")
    track = train[0].tracks[0]
    np.savez(tmp_path / "walk.npz", keypoints=track.keypoints, confidence=track.confidence)
    write_other_formats(train[0], tmp_path)
    printed = [run_here(block, tmp_path) for block in blocks(RECIPES)]
    assert all(printed)
    openpose, landmarks, own = printed[2:5]
    assert openpose.startswith("step18 ")
    assert landmarks.startswith("mediapipe33 ")
    assert own.split("'")[1::2] in (["torso", "left arm"], ["left arm", "torso"])


def write_other_formats(clip: Clip, root: Path) -> None:
    """The people of a clip as ultralytics, OpenPose and MediaPipe give them."""
    frames = [poses for _, poses in clip.by_frame()]
    summaries = [[as_summary(pose) for pose in poses] for poses in frames]
    (root / "results.json").write_text(json.dumps(summaries))
    (root / "lobby_json").mkdir()
    for number, (_, poses) in enumerate(clip.with_skeleton(STEP18).by_frame()):
        rows = [np.column_stack([pose.keypoints, pose.confidence]) for pose in poses]
        people = [{"pose_keypoints_2d": row.ravel().tolist()} for row in rows]
        name = f"lobby_{number:012}_keypoints.json"
        (root / "lobby_json" / name).write_text(json.dumps({"people": people}))
    marks = [[as_landmarks(pose) for pose in poses] for poses in frames]
    (root / "marks.json").write_text(json.dumps(marks))
    (root / "landmarks.py").write_text(LANDMARKS)


LANDMARKS = """
import json
from pathlib import Path
from types import SimpleNamespace as Some

found = json.loads(Path("marks.json").read_text())
results = [
    Some(pose_landmarks=[[Some(x=x, y=y, visibility=v) for x, y, v in one] for one in people])
    for people in found
]
"""


def as_summary(pose: stepvad.Pose) -> dict[str, object]:
    (x, y), low, high = pose.keypoints.T.tolist(), *bounds(pose)
    box = {"x1": low[0], "y1": low[1], "x2": high[0], "y2": high[1]}
    joints = {"x": x, "y": y, "visible": pose.confidence.tolist()}
    return {"confidence": 0.9, "box": box, "keypoints": joints, "track_id": pose.track_id}


def as_landmarks(pose: stepvad.Pose) -> list[list[float]]:
    """33 landmarks, those that COCO lacks in the middle."""
    middle = pose.keypoints.mean(axis=0)
    of = dict(zip(COCO17.joints, zip(pose.keypoints, pose.confidence, strict=True), strict=True))
    places = [of.get(joint, (middle, 0.5)) for joint in MEDIAPIPE33.joints]
    return [[float(xy[0]) / 640, float(xy[1]) / 480, float(sure)] for xy, sure in places]


def bounds(pose: stepvad.Pose) -> tuple[list[float], list[float]]:
    return pose.keypoints.min(axis=0).tolist(), pose.keypoints.max(axis=0).tolist()
