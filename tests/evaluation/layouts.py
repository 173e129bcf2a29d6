"""Small data sets with the names and files of the released ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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


Rows = NDArray[np.float64]
"""Frame and 34 numbers on each line, `(n, 35)`."""
SCALE = 8


@dataclass(frozen=True)
class Release:
    """People by clip and number; masks, and the frames that count, by clip."""

    train: dict[str, dict[int, Rows]]
    test: dict[str, dict[int, Rows]]
    masks: dict[str, list[int]]
    kept: dict[str, list[int]] | None = None


def walk(first: int, n: int, *, seed: int) -> Rows:
    """Somebody who walks to the right, in eighths of a pixel, with all 17 joints."""
    rng = np.random.default_rng(seed)
    body = rng.uniform([100, 60], [140, 160], (17, 2)) + rng.normal(0, 1, (n, 17, 2))
    body[..., 0] += 2 * np.arange(n)[:, None]
    pixels = np.round(SCALE * body.reshape(n, 34)) / SCALE
    return np.column_stack([np.arange(first, first + n), pixels])


def avenue() -> Release:
    """Two training and two test clips whose names are numbers; three frames do not count."""
    train = {
        "01": {1: walk(0, 30, seed=1), 12: walk(4, 25, seed=2)},
        "02": {3: walk(0, 30, seed=3)},
    }
    test = {"01": {1: walk(0, 30, seed=4)}, "02": {2: walk(6, 20, seed=5)}}
    masks = {"01": [0] * 20 + [1] * 12, "02": [0] * 26 + [1] * 4}
    kept = {"01": [1] * 29 + [0] * 3, "02": [1] * 30}
    return Release(train, test, masks, kept)


def shanghaitech() -> Release:
    """The same people in clips of two cameras, and the mask of a clip outside the split."""
    release = avenue()
    names = {"01": "01_0014", "02": "12_0152"}
    test = {names[name]: people for name, people in release.test.items()}
    masks = {names[name]: mask for name, mask in release.masks.items()} | {"06_0150": [1, 0]}
    train = {"01_001": release.train["01"], "06_002": release.train["02"]}
    return Release(train, test, masks)


def with_person(release: Release, rows: Rows) -> Release:
    """Another person, number 7, in the training clip 01."""
    train = release.train | {"01": release.train["01"] | {7: rows}}
    return replace(release, train=train)


def write_csv(release: Release, root: Path) -> Path:
    """The directory of CSV files."""
    for part, clips in (("training", release.train), ("testing", release.test)):
        for name, people in clips.items():
            directory = root / part / "trajectories" / name
            directory.mkdir(parents=True)
            for number, rows in people.items():
                np.savetxt(directory / f"{number:04}.csv", rows, fmt="%.3f", delimiter=",")
    for name, mask in release.masks.items():
        write_mask(root / "testing" / "test_frame_mask" / f"{name}.npy", np.array(mask))
    for name, mask in (release.kept or {}).items():
        masks = root / "hr_bool_masks" / "testing" / "test_frame_mask"
        write_mask(masks / f"{name}.npy", np.array(mask), "bool")
    return root
