"""Official labels, and the classes of anomalies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from stepvad.errors import DataError
from stepvad.formats import labels, read_clips
from stepvad.formats.labels import FrameLabels, attach_classes, write_classes
from tests.formats.examples import write_mask

HR_MASKS = Path("hr_bool_masks") / "testing" / "test_frame_mask"


def shanghaitech(root: Path) -> Path:
    for name in ("01_0014", "01_0130", "12_0152", "12_0142"):
        write_mask(root / "gt" / "test_frame_mask" / f"{name}.npy", [0, 1, 1])
    return root


def ubnormal(root: Path) -> Path:
    for name in ("abnormal_scene_1_scenario_1", "normal_scene_2_scenario_3_fog"):
        write_mask(root / "gt" / f"{name}_tracks.txt", [1, 1, 0], "float64")
    (root / "gt" / "abnormal_scene_5_scenario_2_tracks.txt").write_text("1,0,2\n4,1,1\n\n")
    (root / "gt" / "abnormal_test_video_names.txt").write_text("abnormal_scene_1_scenario_1")
    return root


def msad(root: Path) -> Path:
    for name in ("People_falling_7", "Traffic_accident_2", "Fire_11", "Water_incident_1"):
        write_mask(root / "gt" / "test_frame_mask" / f"{name}.npy", [0, 1, 1, 0])
    write_mask(root / "gt" / "test_frame_mask" / "MSAD_normal_testing_3.npy", [0, 0])
    return root


def abnormal(found: dict[str, FrameLabels]) -> dict[str, list[int]]:
    return {name: one.abnormal.astype(int).tolist() for name, one in found.items()}


def test_shanghaitech_masks_say_one_for_abnormal(tmp_path: Path) -> None:
    found = labels.shanghaitech(shanghaitech(tmp_path))
    assert list(found) == ["01_0014", "01_0130", "12_0142", "12_0152"]
    assert abnormal(found)["01_0014"] == [0, 1, 1]
    assert found["01_0014"].counted.all()
    assert len(found["01_0014"]) == 3


def test_ubnormal_test_labels_are_arrays_with_one_for_normal(tmp_path: Path) -> None:
    found = labels.ubnormal(ubnormal(tmp_path))
    assert abnormal(found) == {
        "abnormal_scene_1_scenario_1": [0, 0, 1],
        "normal_scene_2_scenario_3_fog": [0, 0, 1],
    }


@pytest.mark.parametrize(
    "names",
    [
        ("abnormal_scene_1_scenario_1", "normal_scene_2_scenario_3_fog"),
        ("001_0100", "102_0351"),
    ],
)
def test_the_human_related_split_of_ubnormal_counts_what_its_masks_keep(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    ubnormal(tmp_path)
    write_mask(tmp_path / HR_MASKS / f"{names[0]}.npy", [True, False, True], "bool")
    write_mask(tmp_path / HR_MASKS / f"{names[1]}.npy", [False, True, True], "bool")
    first, second = labels.ubnormal(tmp_path, split="hr").values()
    assert first.counted.tolist() == [True, False, True]
    assert second.counted.tolist() == [False, True, True]
    assert first.abnormal.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("abnormal_scene_10_scenario_1", "010_0100"),
        ("abnormal_scene_7_scenario_2_smoke", "007_0253"),
        ("abnormal_scene_17_scenario_2_fire", "017_0252"),
        ("normal_scene_7_scenario_3_fog", "107_0351"),
        ("normal_scene_17_scenario_3_1", "117_0301"),
        ("normal_scene_1_scenario1_10", "101_0110"),
    ],
)
def test_human_related_masks_of_ubnormal_go_by_number(
    tmp_path: Path, name: str, number: str
) -> None:
    write_mask(tmp_path / "gt" / f"{name}_tracks.txt", [1, 0], "float64")
    write_mask(tmp_path / HR_MASKS / f"{number}.npy", [1, 0], "bool")
    assert labels.ubnormal(tmp_path, split="hr")[name].counted.tolist() == [True, False]


def test_missing_human_related_masks_say_what_to_get(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected abnormal_scene_1_scenario_1.* or 001_0100"):
        labels.ubnormal(ubnormal(tmp_path), split="hr")
    write_mask(tmp_path / HR_MASKS / "001_0100.npy", [1, 0], "bool")
    with pytest.raises(DataError, match=r"expected 3 frames, as in the labels.*got 2"):
        labels.ubnormal(tmp_path, split="hr")


def test_a_clip_that_ubnormal_does_not_have_is_named(tmp_path: Path) -> None:
    write_mask(tmp_path / "gt" / "abnormal_scene_1_scenario_1_snow_tracks.txt", [1])
    with pytest.raises(DataError, match=r"expected a name like abnormal_scene_1_scenario_2"):
        labels.ubnormal(tmp_path, split="hr")
    write_mask(tmp_path / "gt" / "a_tracks.txt", [1])
    with pytest.raises(DataError, match=r"clip a: expected a name like"):
        labels.ubnormal(tmp_path, split="hr")


def test_ubnormal_validation_labels_are_intervals_with_both_ends(tmp_path: Path) -> None:
    ubnormal(tmp_path)
    decimals = "1.000e+00,2.000e+00,3.000e+00\n"
    (tmp_path / "gt" / "abnormal_scene_6_scenario_1_tracks.txt").write_text(decimals)
    lengths = {
        "normal_scene_1_scenario_1": 2,
        "abnormal_scene_5_scenario_2": 5,
        "abnormal_scene_6_scenario_1": 3,
    }
    assert abnormal(labels.ubnormal_validation(tmp_path, lengths)) == {
        "abnormal_scene_5_scenario_2": [1, 1, 1, 0, 0],
        "abnormal_scene_6_scenario_1": [0, 0, 1, 1],  # an event outlasts the last pose
        "normal_scene_1_scenario_1": [0, 0],
    }
    with pytest.raises(DataError, match=r"scene_9_scenario_9_tracks.txt: expected a readable file"):
        labels.ubnormal_validation(tmp_path, {"abnormal_scene_9_scenario_9": 2})


@pytest.mark.parametrize("text", ["", "1,2", "1,2,3,4", "a,b,c", "1,5,2", "1,-2,3", "1,nan,3"])
def test_a_damaged_test_mask_does_not_pass_for_intervals(tmp_path: Path, text: str) -> None:
    ubnormal(tmp_path)
    (tmp_path / "gt" / "abnormal_scene_9_scenario_9_tracks.txt").write_text(text)
    with pytest.raises(DataError, match=r"9_tracks\.txt: expected lines of person,first,last"):
        labels.ubnormal(tmp_path)


def test_msad_keeps_drops_or_relabels_anomalies_without_people(tmp_path: Path) -> None:
    msad(tmp_path)
    full = abnormal(labels.msad(tmp_path))
    assert full == {
        "Fire_11": [0, 1, 1, 0],
        "MSAD_normal_testing_3": [0, 0],
        "People_falling_7": [0, 1, 1, 0],
        "Traffic_accident_2": [0, 1, 1, 0],
        "Water_incident_1": [0, 1, 1, 0],
    }
    st_style = abnormal(labels.msad(tmp_path, split="st"))
    assert st_style == {name: full[name] for name in full if name[0] not in "FW"}
    ub_style = abnormal(labels.msad(tmp_path, split="ub"))
    assert ub_style == full | {"Fire_11": [0] * 4, "Water_incident_1": [0] * 4}


def test_an_anomaly_without_a_category_of_msad_is_refused(tmp_path: Path) -> None:
    write_mask(msad(tmp_path) / "gt" / "test_frame_mask" / "Burglary_1.npy", [0, 1])
    with pytest.raises(DataError, match="clip Burglary_1: expected an anomaly category of MSAD"):
        labels.msad(tmp_path)


def test_names_match_by_number(tmp_path: Path) -> None:
    found = labels.shanghaitech(shanghaitech(tmp_path))
    assert labels.find(found, "01_0014") is found["01_0014"]
    assert labels.find(found, "1_014") is found["01_0014"]
    assert labels.find(found, "01_00140") is None
    assert labels.find(found, "01_0015") is None


def test_missing_labels_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"test_frame_mask: expected a directory, got: No such"):
        labels.shanghaitech(tmp_path)
    (tmp_path / "gt" / "test_frame_mask").mkdir(parents=True)
    with pytest.raises(DataError, match=r"expected frame masks named <clip>\.npy, got none"):
        labels.shanghaitech(tmp_path)
    with pytest.raises(DataError, match=r"expected test labels named <clip>_tracks\.txt"):
        labels.ubnormal(tmp_path)


@pytest.mark.parametrize(
    ("values", "dtype", "said"),
    [
        ([[0, 1]], "uint8", r"expected a mask of shape \(n,\).*got uint8 of shape \(1, 2\)"),
        (1, "uint8", r"got uint8 of shape \(\)"),
        (["0", "1"], "U1", r"got <U1 of shape \(2,\)"),
        ([0, 1], "complex64", "got complex64"),
        ([0, 2], "int64", "frame 1: expected 0 or 1, got 2"),
        ([0, 0.5], "float64", "frame 1: expected 0 or 1, got 0.5"),
        ([float("nan")], "float64", "frame 0: expected 0 or 1, got nan"),
        ([0, -1], "int8", "frame 1: expected 0 or 1, got -1"),
        ([0, None], "object", "expected an NPY array of numbers, got: Object arrays"),
    ],
)
def test_a_mask_holds_zeros_and_ones(tmp_path: Path, values: object, dtype: str, said: str) -> None:
    path = write_mask(tmp_path / "gt" / "test_frame_mask" / "01_0014.npy", values, dtype)
    with pytest.raises(DataError, match=said) as caught:
        labels.shanghaitech(tmp_path)
    assert caught.value.problem.startswith(str(path))
    assert caught.value.hint


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32", ">f8"])
def test_zeros_and_ones_may_have_any_type(tmp_path: Path, dtype: str) -> None:
    write_mask(tmp_path / "gt" / "test_frame_mask" / "a.npy", [0, 1], dtype)
    assert abnormal(labels.shanghaitech(tmp_path)) == {"a": [0, 1]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "expected an NPY array, got another kind of file"),
        (b"PK\x03\x04", "expected an NPY array, got another kind of file"),
        (b"\x80\x04K\x01.", "expected an NPY array, got another kind of file"),
        (b"\x93NUMPY", "expected an NPY array of numbers, got: "),
        (b"\x93NUMPY\x01\x00\x04\x00((((", "expected an NPY array of numbers, got: "),
    ],
)
def test_other_files_are_no_masks(tmp_path: Path, content: bytes, said: str) -> None:
    path = write_mask(tmp_path / "gt" / "test_frame_mask" / "a.npy", [0])
    path.write_bytes(content)
    with pytest.raises(DataError, match=said):
        labels.shanghaitech(tmp_path)


def test_labels_speak_of_the_same_frames() -> None:
    one, two = np.zeros(1, dtype=bool), np.zeros(2, dtype=bool)
    with pytest.raises(DataError, match=r"counted: expected 1 frames, .* got 2"):
        FrameLabels(one, two)
    with pytest.raises(DataError, match=r"abnormal: expected a mask of shape \(n,\)"):
        FrameLabels(one[0], one)


@pytest.mark.parametrize(
    "given",
    [
        [0, 1, 1],
        [False, True, True],
        (0.0, 1.0, 1.0),
        np.array([0, 1, 1], dtype=np.uint8),
        np.array([False, True, True]),
    ],
    ids=lambda given: type(given[0]).__name__,
)
def test_zeros_and_ones_are_labels_in_any_form(given: ArrayLike) -> None:
    found = FrameLabels.all_counted(given)
    assert found.abnormal.dtype == found.counted.dtype == np.bool_
    assert found.abnormal.tolist() == [False, True, True]
    assert found.counted.all()
    assert FrameLabels(given, [1, 1, 0]).counted.tolist() == [True, True, False]  # type: ignore[arg-type]  # a list
    assert FrameLabels.all_counted(found) is found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([0, 2, 1], "abnormal, frame 1: expected 0 or 1, got 2"),
        ([0, float("nan")], "abnormal, frame 1: expected 0 or 1, got nan"),
        ([[0, 1]], r"abnormal: expected a mask of shape \(n,\) .* shape \(1, 2\)"),
        ([[0, 1], [1]], "abnormal: expected a list of numbers"),
        (["normal"], "abnormal: expected a mask .* got <U6"),
        (1, r"abnormal: expected a mask .* shape \(\)"),
    ],
)
def test_other_labels_are_refused(given: ArrayLike, said: str) -> None:
    with pytest.raises(DataError, match=f"{said}.*; give one label per frame"):
        FrameLabels.all_counted(given)


@pytest.mark.data
def test_official_labels_are_read_right(data_dir: Path) -> None:
    def figures(found: dict[str, FrameLabels]) -> tuple[int, int, int]:
        n_abnormal = sum(int(one.abnormal[one.counted].sum()) for one in found.values())
        return len(found), sum(int(one.counted.sum()) for one in found.values()), n_abnormal

    root = data_dir / "ShanghaiTech"
    assert figures(labels.shanghaitech(root)) == (107, 40_791, 17_326)
    assert figures(labels.shanghaitech(root, split="hr")) == (101, 38_697, 16_122)
    assert figures(labels.ubnormal(data_dir / "UBnormal")) == (211, 92_640, 49_650)
    n_clips, n_frames, n_abnormal = figures(labels.shanghaitech(data_dir / "PoseLift"))
    assert (n_clips, n_frames, round(100 * n_abnormal / n_frames, 1)) == (47, 4_846, 31.7)


@pytest.mark.data
def test_every_poselift_clip_has_labels_as_long_as_itself(data_dir: Path) -> None:
    found = labels.shanghaitech(data_dir / "PoseLift")
    for clip in read_clips(data_dir / "PoseLift" / "pose" / "test"):
        matching = labels.find(found, clip.name)
        assert matching is not None
        assert clip.with_length(len(matching)).n_poses == clip.n_poses


@pytest.mark.data
def test_every_interval_file_of_ubnormal_is_read(data_dir: Path) -> None:
    gt = data_dir / "UBnormal" / "gt"
    names = (gt / "abnormal_validation_video_names.txt").read_text().split()
    found = labels.ubnormal_validation(data_dir / "UBnormal", dict.fromkeys(names, 451))
    assert len(found) == 38
    assert all(one.abnormal.any() for one in found.values())


def mask(*values: int) -> NDArray[np.bool_]:
    return np.array(values, dtype=np.bool_)


@pytest.fixture
def labelled() -> dict[str, FrameLabels]:
    """A clip with two runs and a fall that overlap, and one without any anomaly."""
    abnormal = mask(1, 1, 0, 1, 1, 1)
    runs, falls = mask(1, 1, 0, 1, 0, 0), mask(0, 0, 0, 1, 1, 1)
    return {
        "01_0001": FrameLabels(
            abnormal, mask(1, 1, 1, 1, 1, 1), {"run": runs, "fall, slow": falls}
        ),
        "01_0002": FrameLabels.all_counted(mask(0, 0)),
    }


def bare(labelled: dict[str, FrameLabels]) -> dict[str, FrameLabels]:
    return {name: FrameLabels(truth.abnormal, truth.counted) for name, truth in labelled.items()}


def test_every_event_is_a_line(labelled: dict[str, FrameLabels], tmp_path: Path) -> None:
    write_classes(labelled, tmp_path / "classes.csv")
    assert (tmp_path / "classes.csv").read_text("utf-8").splitlines() == [
        "clip,class,first,last",
        "01_0001,run,0,1",
        "01_0001,run,3,3",
        '01_0001,"fall, slow",3,5',
    ]


def test_classes_read_as_they_were_written(
    labelled: dict[str, FrameLabels], tmp_path: Path
) -> None:
    write_classes(labelled, tmp_path / "classes.csv")
    read = attach_classes(bare(labelled), tmp_path / "classes.csv")
    assert [*read] == [*labelled]
    for name, truth in labelled.items():
        assert [*read[name].classes] == [*truth.classes]
        for kind, frames in truth.classes.items():
            np.testing.assert_array_equal(read[name].classes[kind], frames)


def test_without_a_file_there_are_no_classes(
    labelled: dict[str, FrameLabels], tmp_path: Path
) -> None:
    read = attach_classes(bare(labelled), tmp_path / "classes.csv")
    assert [truth.classes for truth in read.values()] == [{}, {}]


def test_leading_zeros_and_clips_of_other_splits_do_not_matter(
    labelled: dict[str, FrameLabels], tmp_path: Path
) -> None:
    file = tmp_path / "classes.csv"
    file.write_text("clip,class,first,last\n1_1,run,0,1\n09_0009,run,50,60\n")
    read = attach_classes(bare(labelled), file)
    assert read["01_0001"].classes["run"].tolist() == [True, True, False, False, False, False]
    assert read["01_0002"].classes == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("01_0001,run,0,6", "line 2: expected a first and a last frame below 6, got 0 and 6"),
        ("01_0001,run,1,0", "got 1 and 0"),
        ("01_0001,run,-1,0", "got -1 and 0"),
        ("01_0001,run,one,2", "got one and 2"),
        ("01_0001,run,0", "expected the columns clip, class, first, last"),
        ("01_0001,run,1,2", "class run: expected booleans of shape .6,., true in abnormal frames"),
    ],
)
def test_a_line_that_cannot_be_is_refused(
    labelled: dict[str, FrameLabels], tmp_path: Path, line: str, message: str
) -> None:
    file = tmp_path / "classes.csv"
    file.write_text(f"clip,class,first,last\n{line}\n")
    with pytest.raises(DataError, match=message) as error:
        attach_classes(bare(labelled), file)
    assert str(file) in error.value.problem


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"\xff\xfe\x00", b"clip,class,first\n"])
def test_a_file_of_something_else_is_refused(
    labelled: dict[str, FrameLabels], tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "classes.csv"
    file.write_bytes(content)
    with pytest.raises(DataError, match="expected the columns clip, class, first, last in UTF-8"):
        attach_classes(bare(labelled), file)


def test_classes_of_normal_frames_or_other_lengths_are_refused() -> None:
    abnormal, counted = mask(1, 0), mask(1, 1)
    for wrong in (mask(0, 1), mask(1), np.array([1, 0])):
        with pytest.raises(DataError, match="class run: expected booleans of shape"):
            FrameLabels(abnormal, counted, {"run": wrong})
