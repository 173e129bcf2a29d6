"""Footage sets made from known data: who is fitted on, and who is tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepvad.errors import DataError
from stepvad.evaluation.endtoend import known
from stepvad.evaluation.endtoend.footageset import FootageSet
from tests.video.clips import write_walker


def fights(root: Path, acts: int = 12) -> Path:
    """Empty clips in AIRTLab's layout; camera 2 has one more non-violent act."""
    for kind in ("violent", "non-violent"):
        for camera in ("cam1", "cam2"):
            (root / "clips" / kind / camera).mkdir(parents=True)
            for act in range(1, acts + 1 + (camera == "cam2")):
                (root / "clips" / kind / camera / f"{act}.mp4").touch()
    return root


def falls(root: Path) -> Path:
    """Labels of four subjects in GMDCSA24's layout; S2 and S3 share a room."""
    facts = [
        {
            "file": f"S{room}/{kind}/0{number}.mp4",
            "kind": kind,
            "intervals": [["Walking", 0.0, 1.5]] + [["Falling (BW)", 1.5, 4]] * (kind == "Fall"),
        }
        for room in (1, 2, 3, 4)
        for kind in ("ADL", "Fall")
        for number in (1, 2)
    ]
    root.mkdir()
    (root / "labels.json").write_text(json.dumps(facts), "utf-8")
    return root


def groups(footage: FootageSet, names: tuple[str, ...]) -> set[str]:
    return {footage.clips[name].group for name in names}


def test_half_of_the_calm_acts_are_learned_from(tmp_path: Path) -> None:
    made = known.open_known("AIRTLab", fights(tmp_path / "fights"))
    (fold,) = made.folds
    learned = groups(made, fold.fit) | groups(made, fold.calibrate)
    assert (len(groups(made, fold.fit)), len(groups(made, fold.calibrate))) == (4, 2)
    assert not learned & groups(made, fold.test)
    tested = [made.clips[name] for name in fold.test]
    assert sum(clip.events == "whole" for clip in tested) == 25
    assert len(fold.fit) + len(fold.calibrate) + len(fold.test) == 50
    assert "seed 0" in made.note

    other = known.open_known("AIRTLab", tmp_path / "fights", seed=1)
    assert other.folds[0].fit != fold.fit
    assert known.open_known("AIRTLab", tmp_path / "fights").folds[0] == fold


def test_every_third_act(tmp_path: Path) -> None:
    made = known.open_known("AIRTLab", fights(tmp_path / "fights"), every=3)
    assert {name.rsplit("-", 1)[1] for name in made.clips} == {"3", "6", "9", "12"}
    assert "those whose number 3 divides" in made.note


def test_a_room_is_tested_by_a_detector_that_never_saw_it(tmp_path: Path) -> None:
    made = known.open_known(
        "GMDCSA24", falls(tmp_path / "falls"), airtlab=fights(tmp_path / "fights"), every=4
    )
    assert [fold.name for fold in made.folds] == ["S1", "S2+S3", "S4"]
    for fold in made.folds:
        assert groups(made, fold.test) == {fold.name}
        assert fold.name not in groups(made, (*fold.fit, *fold.calibrate))
        assert sum("AIRTLab-non-violent" in name for name in fold.fit) == 6
    assert [len(fold.test) for fold in made.folds] == [4, 8, 4]
    assert [len(fold.calibrate) for fold in made.folds] == [3, 2, 3]
    assert [len(fold.fit) for fold in made.folds] == [9, 8, 9]
    assert made.clips["GMDCSA24-S1-Fall-01"].events == ((1.5, 4.0),)
    assert made.clips["GMDCSA24-S1-ADL-01"].events == ()
    assert made.note.endswith("and 6 non-violent clips of AIRTLab")
    alone = known.open_known("GMDCSA24", tmp_path / "falls")
    assert len(alone.folds[0].fit) == 3


def test_pedestrians_faster_and_backwards(tmp_path: Path) -> None:
    pytest.importorskip("av")
    made = known.open_known("vtest", write_walker(tmp_path / "vtest.avi", n_frames=795))
    (fold,) = made.folds
    assert (fold.fit, fold.calibrate) == (("vtest-1x-0-350",), ("vtest-1x-350-500",))
    assert [name.removeprefix("vtest-") for name in fold.test] == [
        *("1x-500-600", "1x-600-700", "1x-700-795", "2x-500-700", "2x-700-795", "3x-500-795"),
        *("backwards-500-600", "backwards-600-700", "backwards-700-795"),
    ]
    assert [made.clips[name].is_abnormal for name in fold.test] == [False] * 3 + [True] * 6
    with pytest.raises(DataError, match="expected more than 600 frames, got 30"):
        known.open_known("vtest", write_walker(tmp_path / "short.avi"))


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected clips/non-violent"):
        known.open_known("AIRTLab", tmp_path)
    (tmp_path / "labels.json").write_text('[{"file": "../../x.mp4", "intervals": []}]')
    with pytest.raises(DataError, match=r"labels\.json: clip: expected <subject>"):
        known.open_known("GMDCSA24", tmp_path)
    (tmp_path / "labels.json").write_text('[{"file": "S1/ADL/1.mp4", "intervals": [["Fall", 1]]}]')
    with pytest.raises(DataError, match="lists of name, begin and end"):
        known.open_known("GMDCSA24", tmp_path)
