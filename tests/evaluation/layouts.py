"""Small data sets with the names and files of the paper's three, as released."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import stepvad
from stepvad.evaluation import walkers
from stepvad.formats.labels import FrameLabels
from stepvad.poses import Clip
from tests.formats.examples import write_mask

Labelled = tuple[Clip, FrameLabels]
SUFFIX = "_alphapose_tracked_person.json"
LEFT_OUT = 60
"""Frames at the end of UBnormal's test clip that its human-related split does not count."""


def write_layouts(root: Path, *, seconds: float = 12.0) -> None:
    """ShanghaiTech, UBnormal and MSAD below a directory, a clip or two of each kind."""
    test = [*walkers.make_clips(2, seed=5, seconds=seconds, anomalies=True)]
    ((train, _),) = walkers.make_clips(1, seed=6, seconds=seconds)
    _write_masked(root / "ShanghaiTech", train, test, "01_001", ["01_0014", "01_0130"])
    _write_masked(root / "MSAD", train, test, "MSAD_normal_1", ["Fighting_3", "Fire_1"])
    _write_ubnormal(root / "UBnormal", train, test)


def write_pose(clip: Clip, path: Path) -> None:
    """One clip as AlphaPose's tracked persons."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stepvad.write_clip(clip, path.with_name(path.name + SUFFIX))


def _write_masked(
    root: Path, train: Clip, test: list[Labelled], train_name: str, names: list[str]
) -> None:
    """A mask for each test clip, 1 = abnormal."""
    write_pose(train, root / "pose" / "train" / train_name)
    for name, (clip, truth) in zip(names, test, strict=True):
        write_pose(clip, root / "pose" / "test" / name)
        write_mask(root / "gt" / "test_frame_mask" / f"{name}.npy", truth.abnormal)


def _write_ubnormal(root: Path, train: Clip, test: list[Labelled]) -> None:
    """Arrays named .txt, 1 = normal; human-related masks; intervals for a validation clip."""
    name, (clip, truth) = "abnormal_scene_1_scenario_1", test[0]
    write_pose(train, root / "pose" / "train" / "normal_scene_1_scenario_1")
    write_pose(clip, root / "pose" / "test" / name)
    write_mask(root / "gt" / f"{name}_tracks.txt", ~truth.abnormal, "float64")
    counted = np.arange(clip.n_frames) < clip.n_frames - LEFT_OUT
    masks = root / "hr_bool_masks" / "testing" / "test_frame_mask"
    write_mask(masks / "001_0100.npy", counted, "bool")
    validation = "abnormal_scene_2_scenario_2"
    write_pose(clip, root / "pose" / "validation" / validation)
    (root / "gt" / f"{validation}_tracks.txt").write_text("1,50,90\n")
