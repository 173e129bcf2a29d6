"""The file that says which anomaly is which."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.formats import classes
from stepvad.formats.labels import FrameLabels


def mask(*values: int) -> NDArray[np.bool_]:
    return np.array(values, dtype=np.bool_)


@pytest.fixture
def labels() -> dict[str, FrameLabels]:
    """A clip with two runs and a fall that overlap, and one without any anomaly."""
    abnormal = mask(1, 1, 0, 1, 1, 1)
    runs, falls = mask(1, 1, 0, 1, 0, 0), mask(0, 0, 0, 1, 1, 1)
    return {
        "01_0001": FrameLabels(
            abnormal, mask(1, 1, 1, 1, 1, 1), {"run": runs, "fall, slow": falls}
        ),
        "01_0002": FrameLabels.all_counted(mask(0, 0)),
    }


def bare(labels: dict[str, FrameLabels]) -> dict[str, FrameLabels]:
    return {name: FrameLabels(truth.abnormal, truth.counted) for name, truth in labels.items()}


def test_every_event_is_a_line(labels: dict[str, FrameLabels], tmp_path: Path) -> None:
    classes.write(labels, tmp_path / "classes.csv")
    assert (tmp_path / "classes.csv").read_text("utf-8").splitlines() == [
        "clip,class,first,last",
        "01_0001,run,0,1",
        "01_0001,run,3,3",
        '01_0001,"fall, slow",3,5',
    ]


def test_classes_read_as_they_were_written(labels: dict[str, FrameLabels], tmp_path: Path) -> None:
    classes.write(labels, tmp_path / "classes.csv")
    read = classes.attach(bare(labels), tmp_path / "classes.csv")
    assert [*read] == [*labels]
    for name, truth in labels.items():
        assert [*read[name].classes] == [*truth.classes]
        for kind, frames in truth.classes.items():
            np.testing.assert_array_equal(read[name].classes[kind], frames)


def test_without_a_file_there_are_no_classes(
    labels: dict[str, FrameLabels], tmp_path: Path
) -> None:
    read = classes.attach(bare(labels), tmp_path / "classes.csv")
    assert [truth.classes for truth in read.values()] == [{}, {}]


def test_leading_zeros_and_clips_of_other_splits_do_not_matter(
    labels: dict[str, FrameLabels], tmp_path: Path
) -> None:
    file = tmp_path / "classes.csv"
    file.write_text("clip,class,first,last\n1_1,run,0,1\n09_0009,run,50,60\n")
    read = classes.attach(bare(labels), file)
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
    labels: dict[str, FrameLabels], tmp_path: Path, line: str, message: str
) -> None:
    file = tmp_path / "classes.csv"
    file.write_text(f"clip,class,first,last\n{line}\n")
    with pytest.raises(DataError, match=message) as error:
        classes.attach(bare(labels), file)
    assert str(file) in error.value.problem


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"\xff\xfe\x00", b"clip,class,first\n"])
def test_a_file_of_something_else_is_refused(
    labels: dict[str, FrameLabels], tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "classes.csv"
    file.write_bytes(content)
    with pytest.raises(DataError, match="expected the columns clip, class, first, last in UTF-8"):
        classes.attach(bare(labels), file)


def test_classes_of_normal_frames_or_other_lengths_are_refused() -> None:
    abnormal, counted = mask(1, 0), mask(1, 1)
    for wrong in (mask(0, 1), mask(1), np.array([1, 0])):
        with pytest.raises(DataError, match="class run: expected booleans of shape"):
            FrameLabels(abnormal, counted, {"run": wrong})
