"""Data sets: clips to fit, validate and test on, in the layouts of their releases (Sec. 4.1)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepvad import formats
from stepvad.errors import ConfigError, DataError, Progress, Report, silent
from stepvad.formats import labels as truth
from stepvad.formats import read_all, trajectories, warn_if_swapped
from stepvad.formats.labels import (
    SHANGHAITECH_NOT_HUMAN,
    FrameLabels,
    attach_classes,
    write_classes,
)
from stepvad.model.scoring import Smoothing
from stepvad.poses import Clip
from stepvad.skeletons import COCO17

HumanRelated = Literal["hr-shanghaitech", "hr-avenue"]
DatasetLayout = Literal["shanghaitech", "ubnormal", "msad", "poselift", HumanRelated]
Split = Literal["full", "hr", "st", "ub", "validation"]
Reader = Callable[[], Iterable[Clip]]


@dataclass(frozen=True, slots=True)
class FrameSmoothing:
    """Smoothing of scores: σ over a person's scores, and σ over a clip's frames."""

    person_sigma: float = 0.0
    frame_sigma: float = 0.0
    over: Smoothing = "filled"
    """Frames that are smoothed: all, with the floor filled in, or only those with a score."""


SMOOTHING: Mapping[DatasetLayout, FrameSmoothing] = {
    "shanghaitech": FrameSmoothing(0.0, 13.0),
    "ubnormal": FrameSmoothing(1.0, 21.0),
    "msad": FrameSmoothing(),
    # No published setting. Its clips are so short that the floor, smoothed into their scored
    # frames, would decide everything: even a constant score falls to 29 on covered frames.
    "poselift": FrameSmoothing(0.0, 13.0, "scored"),
    "hr-shanghaitech": FrameSmoothing(0.0, 13.0),
    "hr-avenue": FrameSmoothing(0.0, 20.0),
}
"""The reference smoothing of each data set."""
UBNORMAL_VALIDATION = ("validation", "val")
"""Directories below `pose` that may hold UBnormal's validation clips."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Training, validation and test clips, and their labels.

    `labels` are those of the chosen split; `left_out` names the test clips that it excludes.
    `validation`, if any, returns a data set whose test clips are the validation clips; all their
    frames count, whatever the split.
    """

    name: str
    train: Reader
    test: Reader
    labels: Mapping[str, FrameLabels]
    left_out: Mapping[str, FrameLabels]
    smoothing: FrameSmoothing
    validation: Callable[[], Dataset] | None = None

    def train_clips(self) -> Iterator[Clip]:
        """Yield the training clips, which show only normal behaviour."""
        yield from self.train()

    def validation_set(self) -> Dataset:
        """A data set whose test clips are the validation clips."""
        if self.validation is None:
            raise DataError(
                f"{self.name}: expected a data set with validation clips, got one without",
                hint="put labelled clips that are not in the test set into a directory validation, "
                "in the layout of the data set; UBnormal's poses go to pose/validation",
            )
        return self.validation()

    def test_clips(self) -> Iterator[tuple[Clip, FrameLabels]]:
        """Yield every labelled test clip once, with as many frames as its labels, and its labels.

        Clips and labels are matched by name, ignoring leading zeros of numbers. Labelled clips
        without poses come last, as clips without people; poses without labels are an error unless
        the split excludes the clip.
        """
        without_poses = {id(labels): name for name, labels in self.labels.items()}
        fps, skeleton = None, COCO17
        for clip in self.test():
            labels = truth.find(self.labels, clip.name)
            fps, skeleton = clip.fps, clip.skeleton
            if labels is None and truth.find(self.left_out, clip.name) is None:
                raise DataError(
                    f"{self.name}, clip {clip.name}: expected frame labels for every test clip, "
                    "got poses without labels",
                    hint="add its labels, or move its poses out of the test set",
                )
            if labels is None:
                continue
            if id(labels) not in without_poses:
                raise DataError(
                    f"{self.name}, clip {clip.name}: expected one pose file for each clip, got two",
                    hint="keep one of the files whose names differ only in leading zeros",
                )
            del without_poses[id(labels)]
            yield clip.with_length(len(labels)), labels
        for name in without_poses.values():
            labels = self.labels[name]
            yield Clip(name, fps, len(labels), (), skeleton), labels


def open_dataset(
    root: Path | str, *, split: Split = "full", layout: DatasetLayout | Literal["auto"] = "auto"
) -> Dataset:
    """Open the data set in a directory with `pose/train`, `pose/test` and `gt`.

    Trajectories are a directory with `training` and `testing`.

    Splits: `full` and `hr` (human-related) for ShanghaiTech, Avenue and UBnormal, `full`, `st` and
    `ub` for MSAD, only `full` for PoseLift. Your own footage uses ShanghaiTech's layout:
    one mask `gt/test_frame_mask/<clip>.npy` per test clip, 1 = abnormal, and optionally
    `gt/classes.csv` with the anomaly classes. Validation clips are UBnormal's under
    `pose/validation`, or those of a directory `validation` with the same layout as the data set;
    split `validation` uses them as the test clips.
    """
    root = Path(root)
    if split == "validation":
        return open_dataset(root, layout=layout).validation_set()
    if layout == "auto":
        layout = recognise(root)
    if layout not in SMOOTHING:
        raise ConfigError(f"layout: expected auto, {', '.join(SMOOTHING)}, got {layout!r}")
    train, test = _readers(root, layout)
    labels = _labels(root, layout, split)
    full = labels if split == "full" else _labels(root, layout, "full")
    dataset = Dataset(
        name=root.resolve().name,
        train=train,
        test=test,
        labels=labels,
        left_out={clip: full[clip] for clip in full.keys() - labels.keys()},
        smoothing=SMOOTHING[layout],
    )
    return replace(dataset, validation=_validation(root, layout, dataset))


def of_clips(
    name: str,
    *,
    train: Reader,
    test: Iterable[tuple[Clip, FrameLabels | ArrayLike]],
    validation: Dataset | None = None,
) -> Dataset:
    """A data set built in memory, as if it had been written and opened.

    Test clips are kept in memory, sorted by name. Their labels may be one 0 or 1 per frame.
    """
    labelled = [(clip, FrameLabels.all_counted(labels)) for clip, labels in test]
    pairs = sorted(labelled, key=lambda pair: pair[0].name)
    clips = [clip for clip, _ in pairs]
    return Dataset(
        name=name,
        train=train,
        test=lambda: clips,
        labels={clip.name: labels for clip, labels in pairs},
        left_out={},
        smoothing=SMOOTHING["shanghaitech"],
        validation=None if validation is None else lambda: validation,
    )


def write_dataset(
    dataset: Dataset, directory: Path | str, *, suffix: str = ".parquet", report: Report = silent
) -> None:
    """Write `pose/train`, `pose/test` and `gt`, with the anomaly classes in `gt/classes.csv`.

    Validation clips become a nested data set `validation` without training clips. Each clip is a
    pose file `<clip><suffix>`, which ends in `.parquet` or `.json`.
    """
    directory = Path(directory)
    _write_test(dataset, directory, suffix, report)
    if dataset.validation is not None:
        _write_test(dataset.validation(), directory / "validation", suffix, report)
    _write_clips(dataset.train_clips(), directory / "pose" / "train", suffix, report)


def read_training(
    paths: Sequence[Path], *, format: str = "auto", report: Report = silent
) -> Iterator[Clip]:
    """Yield the clips to fit on: the training clips of data sets, and all clips of other paths."""
    roots = [path for path in paths if format == "auto" and is_dataset(path)]
    datasets = [open_dataset(root) for root in roots]
    clips = (clip for dataset in datasets for clip in dataset.train_clips())
    for number, clip in enumerate(warn_if_swapped(clips), start=1):
        yield clip
        report(Progress("reading", number, 0, clip.name))
    others = [path for path in paths if path not in roots]
    yield from read_all(others, format=format, report=report)


def read_truth(path: Path, clip: Clip) -> NDArray[np.bool_]:
    """Mask of the abnormal frames of a clip; `path` is its mask or its data set."""
    if path.is_file():
        return truth.read_mask(path).abnormal
    found = truth.find(open_dataset(path).labels, clip.name)
    if found is None:
        raise DataError(
            f"{path}: expected labels of clip {clip.name}, got none",
            hint="give the data set of the clip, or its mask as .npy",
        )
    return found.abnormal


def recognise(root: Path) -> DatasetLayout:
    """The layout of a data set, recognised by its label files and the scores of its poses."""
    layout = _layout_of(root)
    if layout is None:
        raise DataError(
            f"{root}: expected a data set, got neither gt/test_frame_mask/<clip>.npy "
            "(ShanghaiTech, PoseLift, MSAD, your own) nor gt/<clip>_tracks.txt (UBnormal) "
            f"nor {TRAJECTORIES['test']}",
            hint="give the directory that holds gt and pose",
        )
    return layout


def is_dataset(path: Path) -> bool:
    """True if a path is a data set, rather than only poses."""
    return _layout_of(path) is not None


def clip_digest(clip: Clip, labels: FrameLabels | None = None) -> bytes:
    """A digest of a clip's poses, its rate and, if it has any, its labels."""
    sha = hashlib.sha256(clip.digest() + repr((clip.fps, clip.n_frames)).encode())
    if labels is not None:
        sha.update(labels.abnormal.tobytes() + labels.counted.tobytes())
    return sha.digest()


def _layout_of(root: Path) -> DatasetLayout | None:
    if any((root / "gt").glob("*_tracks.txt")):
        return "ubnormal"
    if (layout := trajectory_layout(root)) is not None:
        return layout
    names = [path.stem for path in (root / "gt" / "test_frame_mask").glob("*.npy")]
    if not names:
        return None
    # MSAD names clips by what they show: `Fighting_3`, `MSAD_normal_testing_7`
    kinds = [re.sub("_[0-9]+$", "", name).lower() for name in names]
    known = truth.MSAD_HUMAN + truth.MSAD_NOT_HUMAN
    if any(kind.startswith("msad_") or kind in known for kind in kinds):
        return "msad"
    # PoseLift's poses lack detection scores, in the first bytes already
    for path in sorted((root / "pose" / "test").glob("*.json"))[:1]:
        with path.open("rb") as file:
            if re.search(rb'"scores"\s*:\s*null', file.read(1 << 16)):
                return "poselift"
    return "shanghaitech"


def _readers(root: Path, layout: DatasetLayout) -> tuple[Reader, Reader]:
    """Readers of the training and test clips."""
    if layout == "hr-shanghaitech" or layout == "hr-avenue":
        people = partial(trajectories.read, fps=TRAJECTORY_FPS[layout])
        train, test = (partial(people, root / TRAJECTORIES[part]) for part in ("train", "test"))
        return train, test
    if not (root / "pose" / "test").is_dir():
        raise DataError(
            f"{root}: expected poses of the test clips in {root / 'pose' / 'test'}, "
            "got no such directory",
            hint="put one pose file per clip there, and those to fit on in pose/train",
        )
    pose_format: str = "poselift" if layout == "poselift" else "auto"
    poses = partial(formats.read_clips, format=pose_format)
    return partial(poses, root / "pose" / "train"), partial(poses, root / "pose" / "test")


def _validation(
    root: Path, layout: DatasetLayout, dataset: Dataset
) -> Callable[[], Dataset] | None:
    """A function that opens the validation clips, or None if there are none."""
    if layout == "ubnormal":
        for name in UBNORMAL_VALIDATION:
            if (root / "pose" / name).is_dir():
                return partial(_ubnormal_validation, root, root / "pose" / name, dataset)
    elif (root / "validation").is_dir():

        def nested() -> Dataset:
            inner = open_dataset(root / "validation", layout=layout)
            return replace(inner, name=f"{dataset.name} validation", train=dataset.train)

        return nested
    return None


def _ubnormal_validation(root: Path, poses: Path, dataset: Dataset) -> Dataset:
    """UBnormal's validation clips; their names and lengths come from the poses alone."""
    lengths = {clip.name: clip.n_frames for clip in formats.read_clips(poses)}
    return replace(
        dataset,
        name=f"{dataset.name} validation",
        test=partial(formats.read_clips, poses),
        labels=truth.ubnormal_validation(root, lengths),
        left_out={},
    )


def _labels(root: Path, layout: DatasetLayout, split: Split) -> dict[str, FrameLabels]:
    match layout, split:
        case "shanghaitech", "full" | "hr":
            return attach_classes(
                truth.shanghaitech(root, split=split), root / "gt" / "classes.csv"
            )
        case "ubnormal", "full" | "hr":
            return truth.ubnormal(root, split=split)
        case "msad", "full" | "st" | "ub":
            return truth.msad(root, split=split)
        case "poselift", "full":
            return truth.shanghaitech(root)
        case "hr-shanghaitech" | "hr-avenue", "full" | "hr":
            return trajectory_labels(root, layout, split=split)
        case _:
            expected = {"msad": "full, st or ub", "poselift": "full"}.get(layout, "full or hr")
            raise ConfigError(f"split: expected {expected} for {layout}, got {split!r}")


def _write_test(dataset: Dataset, directory: Path, suffix: str, report: Report) -> None:
    clips = (clip for clip, _ in dataset.test_clips())
    _write_clips(clips, directory / "pose" / "test", suffix, report)
    masks = directory / "gt" / "test_frame_mask"
    masks.mkdir(parents=True, exist_ok=True)
    for name, labels in dataset.labels.items():
        np.save(masks / f"{name}.npy", labels.abnormal.astype(np.uint8))
    write_classes(dataset.labels, directory / "gt" / "classes.csv")


def _write_clips(clips: Iterator[Clip], directory: Path, suffix: str, report: Report) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for number, clip in enumerate(clips, start=1):
        formats.write_clip(clip, directory / f"{formats.file_stem(clip.name)}{suffix}")
        report(Progress("writing", number, 0, clip.name))


TRAJECTORY_FPS: Mapping[HumanRelated, float] = {"hr-shanghaitech": 24.0, "hr-avenue": 25.0}
TRAJECTORIES = {"train": Path("training/trajectories"), "test": Path("testing/trajectories")}
"""Directories of the clips, each a directory of `<person>.csv`."""


def trajectory_layout(root: Path) -> HumanRelated | None:
    """The data set in a directory, by the names of its test clips; or None.

    Avenue's clips are numbers, ShanghaiTech's are `SS_CCCC`, camera and clip.
    """
    if not (root / TRAJECTORIES["test"]).is_dir():
        return None
    names = trajectories.clip_names(root / TRAJECTORIES["test"])
    avenue = names and all(re.fullmatch("[0-9]+", name) for name in names)
    return "hr-avenue" if avenue else "hr-shanghaitech"


def trajectory_labels(
    root: Path, layout: HumanRelated, *, split: Literal["full", "hr"] = "full"
) -> dict[str, FrameLabels]:
    """Frame masks of the test clips.

    Split `hr` excludes six clips of ShanghaiTech, and those frames of Avenue in which the anomaly
    shows no person.
    """
    every = truth.trajectories(root, trajectories.clip_names(root / TRAJECTORIES["test"]))
    if split == "full":
        return every
    if layout == "hr-shanghaitech":
        return {name: every[name] for name in every if name not in SHANGHAITECH_NOT_HUMAN}
    return truth.human_related_frames(root, every)
