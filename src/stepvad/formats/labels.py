"""Official ground truth: which frames of a clip are abnormal, and which a split counts (Sec. 4.1).

Every reader takes the root directory of a data set and returns labels by clip name, sorted,
without the clips that the split excludes. `gt/classes.csv` names the anomalies, an event per line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepvad.errors import DataError
from stepvad.files import NPY_MAGIC, read_array, replacing
from stepvad.formats import reading
from stepvad.formats.reading import MAX_LABEL_BYTES, children, located, whole_number
from stepvad.model.scoring import true_runs

SHANGHAITECH_NOT_HUMAN = ("01_0130", "01_0135", "01_0136", "06_0144", "06_0145", "12_0152")
"""Test clips that the human-related split of ShanghaiTech excludes."""
HR_MASKS = Path("hr_bool_masks", "testing", "test_frame_mask")
"""Directory of the human-related masks below a data set; true = the frame counts."""
UBNORMAL_VARIANTS = {"": 0, "fog": 51, "fire": 52, "smoke": 53}
"""Number of each scenario variant in the names of UBnormal's human-related masks."""
MSAD_HUMAN = (
    "assault",
    "fighting",
    "people_falling",
    "robbery",
    "shooting",
    "traffic_accident",
    "vandalism",
)
"""Human-related anomalies of MSAD (supplementary, Evaluation MSAD-HR Dataset)."""
MSAD_NOT_HUMAN = ("explosion", "fire", "object_falling", "water_incident")
"""Anomalies of MSAD without people (supplementary, Evaluation MSAD-HR Dataset)."""
ONE_EACH = "give one label per frame, 1 or True where it is abnormal"

CLASS_COLUMNS = ("clip", "class", "first", "last")
"""Clip, anomaly class, and first and last frame of the event."""


@dataclass(frozen=True, slots=True)
class FrameLabels:
    """Frames of a clip that are abnormal, `(n,)`, and frames that the split counts, `(n,)`.

    `classes` maps each known anomaly class to a mask `(n,)` of the abnormal frames that show it.
    """

    abnormal: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    classes: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Convert 0 and 1 to booleans, and check that all arrays have the same length."""
        for name in ("abnormal", "counted"):
            values, n = mask_of(getattr(self, name), name), len(self.abnormal)
            if len(values) != n:
                raise DataError(
                    f"{name}: expected {n} frames, as many as are labelled, got {len(values)}",
                    hint=ONE_EACH,
                )
            object.__setattr__(self, name, values)
        for name, frames in self.classes.items():
            if frames.dtype != np.bool_ or frames.shape != (n,) or (frames & ~self.abnormal).any():
                raise DataError(
                    f"class {name}: expected booleans of shape ({n},), true in abnormal frames "
                    f"alone, got {frames.dtype} of shape {frames.shape}",
                    hint="a frame with an anomaly of some class is abnormal",
                )

    @classmethod
    def all_counted(cls, abnormal: FrameLabels | ArrayLike) -> FrameLabels:
        """Labels in which every frame counts; `abnormal (n,)` is boolean, or 0 and 1.

        Labels are returned unchanged.
        """
        if isinstance(abnormal, FrameLabels):
            return abnormal
        mask = mask_of(abnormal, "abnormal")
        return cls(mask, np.ones(len(mask), dtype=np.bool_))

    def __len__(self) -> int:
        """Number of frames."""
        return len(self.abnormal)


def mask_of(values: ArrayLike, what: str, *, hint: str = ONE_EACH) -> NDArray[np.bool_]:
    """Convert booleans, or numbers 0 and 1, to booleans `(n,)`; errors start with `what`."""
    try:
        given = np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise DataError(f"{what}: expected a list of numbers, got {error}", hint=hint) from error
    if given.ndim != 1 or given.dtype.kind not in "biuf":
        raise DataError(
            f"{what}: expected a mask of shape (n,) with one number per frame, "
            f"got {given.dtype} of shape {given.shape}",
            hint=hint,
        )
    # the first frame that is neither normal nor abnormal
    wrong = np.flatnonzero((given != 0) & (given != 1))
    if len(wrong):
        raise DataError(
            f"{what}, frame {wrong[0]}: expected 0 or 1, got {given[wrong[0]]}", hint=hint
        )
    return given.astype(np.bool_)


def find(labels: Mapping[str, FrameLabels], clip_name: str) -> FrameLabels | None:
    """The labels of a clip, or None; leading zeros in clip names are ignored.

    PoseLift, for example, pads its clip numbers differently in poses and masks.
    """
    if clip_name in labels:
        return labels[clip_name]
    wanted = _unpadded(clip_name)
    return next((labels[name] for name in labels if _unpadded(name) == wanted), None)


def read_mask(path: Path) -> FrameLabels:
    """The labels of one clip from its mask, an NPY array with 1 = abnormal."""
    return FrameLabels.all_counted(_mask(path))


def shanghaitech(root: Path, *, split: Literal["full", "hr"] = "full") -> dict[str, FrameLabels]:
    """ShanghaiTech: `gt/test_frame_mask/SS_CCCC.npy`, 1 = abnormal; PoseLift has the same layout.

    The human-related split excludes six clips.
    """
    labels = _labels_in(root / "gt" / "test_frame_mask")
    left_out = SHANGHAITECH_NOT_HUMAN if split == "hr" else ()
    return {name: one for name, one in labels.items() if name not in left_out}


def msad(root: Path, *, split: Literal["full", "st", "ub"] = "full") -> dict[str, FrameLabels]:
    """MSAD: `gt/test_frame_mask/<clip>.npy`, 1 = abnormal, for all 360 test clips.

    A clip is named `<Category>_<n>`, like `People_falling_7`; a clip with any other name, like
    `MSAD_normal_testing_7`, must be normal. The table of anomalous intervals that comes with the
    data set lacks the length of normal clips, so it is not read here. Split `st` drops the clips
    of anomalies without people, as ShanghaiTech's human-related split does; `ub` keeps them and
    labels their frames as normal.
    """
    labels: dict[str, FrameLabels] = {}
    for name, truth in _labels_in(root / "gt" / "test_frame_mask").items():
        category = re.sub("_[0-9]+$", "", name).lower()
        if category not in MSAD_HUMAN + MSAD_NOT_HUMAN and truth.abnormal.any():
            raise DataError(
                f"{root}, clip {name}: expected an anomaly category of MSAD in the name of a clip "
                "with abnormal frames, got none",
                hint="name it as MSAD does, such as People_falling_7",
            )
        # anomalies without people: kept, dropped or labelled as normal
        if category not in MSAD_NOT_HUMAN or split == "full":
            labels[name] = truth
        elif split == "ub":
            labels[name] = FrameLabels.all_counted(np.zeros_like(truth.abnormal))
    return labels


def ubnormal(root: Path, *, split: Literal["full", "hr"] = "full") -> dict[str, FrameLabels]:
    """UBnormal's test clips: `gt/<clip>_tracks.txt`, an NPY array despite its name, 1 = normal.

    The human-related split counts the frames that `hr_bool_masks/testing/test_frame_mask/<id>.npy`
    keeps. <id> is the clip's name or four numbers: `KSS_NNVV` with K = 1 for normal, scene SS,
    scenario NN, and VV = 51 fog, 52 fire, 53 smoke, the number of another part, or 00.
    """
    labels: dict[str, FrameLabels] = {}
    for path in children(root / "gt", suffixes=("_tracks.txt",)):
        # training labels have the same suffix
        if reading.read_bytes(path, most=MAX_LABEL_BYTES).startswith(NPY_MAGIC):
            name = path.name.removesuffix("_tracks.txt")
            truth = FrameLabels.all_counted(~_mask(path))
            if split == "hr":
                ids = [name, _ubnormal_number(name)]
                truth = replace(truth, counted=_human_related(root, name, ids, len(truth)))
            labels[name] = truth
        else:
            _intervals(path)  # raises if this is a damaged test mask rather than a text file
    if not labels:
        raise DataError(
            f"{root / 'gt'}: expected test labels named <clip>_tracks.txt, got none",
            hint="get the frame labels of UBnormal's test clips",
        )
    return dict(sorted(labels.items()))


def ubnormal_validation(root: Path, lengths: Mapping[str, int]) -> dict[str, FrameLabels]:
    """UBnormal's validation clips, whose labels do not include the length of a clip.

    `lengths` gives the minimum length of each clip to label, for example up to its last pose;
    abnormal frames may extend it. `gt/<clip>_tracks.txt` lists `person,first,last`, both ends
    abnormal; a clip named `normal_…` needs no file.
    """
    labels: dict[str, FrameLabels] = {}
    for name in sorted(lengths):
        is_normal = name.startswith("normal_")
        # intervals of every person's anomaly, both ends abnormal, as frames (n,)
        found = [] if is_normal else _intervals(root / "gt" / f"{name}_tracks.txt")
        n_frames = max([lengths[name], *(last + 1 for _, _, last in found)])
        abnormal = np.zeros(n_frames, dtype=np.bool_)
        for _, first, last in found:
            abnormal[first : last + 1] = True
        labels[name] = FrameLabels.all_counted(abnormal)
    return labels


def trajectories(root: Path, clips: Iterable[str]) -> dict[str, FrameLabels]:
    """Trajectories: `testing/test_frame_mask/<clip>.npy`, 1 = abnormal, of these clips alone.

    Releases contain masks of clips that their split excludes, without trajectories.
    """
    wanted = set(clips)
    labels = _labels_in(root / "testing" / "test_frame_mask")
    return {name: one for name, one in labels.items() if name in wanted}


def human_related_frames(root: Path, labels: Mapping[str, FrameLabels]) -> dict[str, FrameLabels]:
    """The same labels, counting the frames that `<HR_MASKS>/<clip>.npy` keeps."""
    return {
        name: replace(label, counted=_human_related(root, name, [name], len(label)))
        for name, label in labels.items()
    }


def attach_classes(labels: Mapping[str, FrameLabels], path: Path) -> dict[str, FrameLabels]:
    """Add the classes of a file, if it exists, to the labels; clips without labels are ignored."""
    if not path.exists():
        return dict(labels)
    found: dict[int, dict[str, NDArray[np.bool_]]] = {}
    # the frames of each class, by the labels of its clip; lines count from the header
    for number, row in enumerate(_class_rows(path), start=2):
        truth = find(labels, row[0])
        if truth is not None:
            first, last = (whole_number(value) for value in row[2:])
            if first is None or last is None or not first <= last < len(truth):
                raise DataError(
                    f"{path}, line {number}: expected a first and a last frame below "
                    f"{len(truth)}, got {row[2]} and {row[3]}",
                    hint="frames count from 0",
                )
            classes = found.setdefault(id(truth), {})
            frames = classes.setdefault(row[1], np.zeros(len(truth), dtype=np.bool_))
            frames[first : last + 1] = True
    with located(str(path)):
        return {
            clip: replace(truth, classes=found.get(id(truth), {})) for clip, truth in labels.items()
        }


def write_classes(labels: Mapping[str, FrameLabels], path: Path) -> None:
    """Write one line per contiguous event of each class."""
    text = StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(CLASS_COLUMNS)
    for clip, truth in labels.items():
        for name, frames in truth.classes.items():
            lines.writerows([clip, name, first, end - 1] for first, end in true_runs(frames))
    with replacing(path, DataError) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")


def _labels_in(directory: Path) -> dict[str, FrameLabels]:
    """The labels in every `<clip>.npy` of a directory, by clip name and sorted."""
    paths = sorted(children(directory, suffixes=(".npy",)), key=lambda path: path.stem)
    if not paths:
        raise DataError(
            f"{directory}: expected frame masks named <clip>.npy, got none",
            hint="give the root of the data set, above gt",
        )
    return {path.stem: read_mask(path) for path in paths}


def _mask(path: Path) -> NDArray[np.bool_]:
    """A mask of zeros and ones, `(n,)`."""
    data = reading.read_bytes(path, most=MAX_LABEL_BYTES)
    with located(str(path)):
        values = read_array(data)
    return mask_of(values, str(path), hint="get the official frame masks")


def _intervals(path: Path) -> list[tuple[int, int, int]]:
    """Parse lines of `person,first,last`; the numbers may be written as decimals."""
    text = reading.read_bytes(path, most=MAX_LABEL_BYTES).decode("ascii", errors="replace")
    intervals: list[tuple[int, int, int]] = []
    for line in filter(str.strip, text.splitlines()):
        numbers = [_number(part) for part in line.split(",")]
        match numbers:
            case [int(person), int(first), int(last)] if first <= last <= reading.MAX_EMPTY_FRAMES:
                intervals.append((person, first, last))
            case _:
                raise DataError(
                    f"{path}: expected lines of person,first,last, got {line[:60]!r}",
                    hint="get the official frame labels",
                )
    if not intervals:
        raise DataError(
            f"{path}: expected lines of person,first,last, got none",
            hint="get the official frame labels",
        )
    return intervals


def _number(text: str) -> int | None:
    """Parse a non-negative integer, written as `450` or `4.500e+02`; None for anything else."""
    try:
        return whole_number(float(text))
    except ValueError:
        return None


def _human_related(
    root: Path, name: str, candidates: Sequence[str], n_frames: int
) -> NDArray[np.bool_]:
    """The frames of a clip that its human-related mask keeps, `(n,)`; candidates are ids."""
    directory = root / HR_MASKS
    paths = [directory / f"{candidate}.npy" for candidate in candidates]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        raise DataError(
            f"{directory}: expected {' or '.join(path.name for path in paths)}, got no such file",
            hint="get hr_bool_masks, the human-related masks released with MoCoDAD",
        )
    counted = _mask(path)
    if len(counted) != n_frames:
        raise DataError(
            f"{path}: expected {n_frames} frames, as in the labels of {name}, got {len(counted)}",
            hint="get masks and labels of the same release",
        )
    return counted


def _ubnormal_number(name: str) -> str:
    """The id of a clip's human-related mask: 107_0351 for `normal_scene_7_scenario_3_fog`."""
    parts = re.fullmatch("(normal|abnormal)_scene_([0-9]+)_scenario_?([0-9]+)_?(.*)", name)
    kind, scene, scenario, variant = parts.groups() if parts else ("", "", "", "?")
    number = int(variant) if variant.isdecimal() else UBNORMAL_VARIANTS.get(variant)
    if number is None:
        raise DataError(
            f"clip {name}: expected a name like abnormal_scene_1_scenario_2 or …_2_fog",
            hint="name the clips as UBnormal does",
        )
    return f"{int(kind == 'normal')}{int(scene):02d}_{int(scenario):02d}{number:02d}"


def _unpadded(name: str) -> str:
    """A name without leading zeros in its numbers: `1_14` for `01_0014`."""
    return re.sub("0*([0-9]+)", r"\1", name)


def _class_rows(path: Path) -> list[list[str]]:
    """The rows below the header, four cells each."""
    try:
        header, *rows = csv.reader(
            StringIO(reading.read_bytes(path, most=MAX_LABEL_BYTES).decode("utf-8-sig"))
        )
    except (UnicodeDecodeError, ValueError, csv.Error):
        header, rows = [], []
    if header != list(CLASS_COLUMNS) or any(len(row) != len(CLASS_COLUMNS) for row in rows):
        raise DataError(
            f"{path}: expected the columns {', '.join(CLASS_COLUMNS)} in UTF-8, got something else",
            hint="write one event per line, separated by commas",
        )
    return rows
