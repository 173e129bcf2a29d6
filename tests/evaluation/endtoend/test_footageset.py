"""Descriptions of footage sets: read, written, and refused with a reason."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from stepvad.errors import DataError
from stepvad.evaluation.endtoend import footageset
from stepvad.video.extract import FrameRange

HALL: dict[str, Any] = {
    "version": 1,
    "name": "hall",
    "note": "made for a test",
    "clips": {
        "monday": {"video": "monday.mp4", "frames": ":500"},
        "tuesday": {"poses": "tuesday.parquet", "fps": 10},
        "fall": {"video": "fall.mp4", "group": "act-1", "events": [[1.8, 6], [8, 9.5]]},
        "fight": {"video": "fight.mp4", "group": "act-2", "events": "whole"},
        "rush": {"video": "monday.mp4", "frames": "500:700", "speed": 2, "backwards": True},
        "unused": {"video": "unused.mp4"},
    },
    "folds": {
        "all": {"fit": ["monday"], "calibrate": ["tuesday"], "test": ["fall", "fight", "rush"]}
    },
}


def described(path: Path, **changes: object) -> Path:
    """The description, with a value at each place such as `clips.fall.events` changed."""
    facts = deepcopy(HALL)
    for place, value in changes.items():
        *parents, last = place.split("__")
        inner: Any = facts
        for name in parents:
            inner = inner[name]
        inner[last] = value
    path.write_text(json.dumps(facts), "utf-8")
    return path


def test_a_description_is_read(tmp_path: Path) -> None:
    hall = footageset.read(described(tmp_path / "hall.json"))
    clips = hall.clips
    assert clips["monday"].path == tmp_path / "monday.mp4"
    assert clips["monday"].frames == FrameRange(0, 500)
    assert (clips["tuesday"].is_video, clips["tuesday"].fps) == (False, 10)
    assert clips["fall"].events == ((1.8, 6), (8, 9.5))
    assert clips["fight"].events == "whole"
    assert (clips["rush"].speed, clips["rush"].backwards) == (2, True)
    assert [clip.name for clip in hall.used()] == ["monday", "tuesday", "fall", "fight", "rush"]
    assert hall.folds[0].test == ("fall", "fight", "rush")


def test_what_is_written_reads_the_same(tmp_path: Path) -> None:
    hall = footageset.read(described(tmp_path / "hall.json"))
    footageset.write(hall, tmp_path / "copy.json")
    again = footageset.read(tmp_path / "copy.json")
    assert [*again.clips.values()] == hall.used()
    assert (again.name, again.note, again.folds) == (hall.name, hall.note, hall.folds)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("version", 2, "expected version 1 or older, got 2"),
        ("name", 3, "expected a text as name, got 3"),
        ("fold", {}, "got 'fold'"),
        ("folds", {}, "expected at least one fold, got none"),
        ("clips__fall__evnts", [], "got 'evnts'"),
        ("clips__fall__poses", "a.parquet", "expected a video or poses"),
        ("clips__fall__events", [[1, 2, 3]], "pairs of begin and end"),
        ("clips__fall__events", [[6, 1.8]], "got 6, 1.8"),
        ("clips__fall__events", [["a", 2]], "finite numbers as events"),
        ("clips__monday__frames", "500:100", "A below B"),
        ("clips__monday__frames", "-1", "A:B"),
        ("clips__monday__speed", 1000, "a speed from 1 to 100, got 1000"),
        ("clips__tuesday__speed", 2, "expected a video for frames, speed and backwards, got poses"),
        ("clips__../x", {"video": "x.mp4"}, "expected a name of letters"),
        ("folds__all__fit", [], "expected clips to fit, got none"),
        ("folds__all__fit", ["sunday"], "'sunday' which the set does not have"),
        ("folds__all__fit", ["tuesday"], "'tuesday' twice"),
        ("folds__all__calibrate", ["fall"], "expected normal clips to calibrate, got fall"),
        ("clips__monday__group", "act-1", "got act-1 to fit and to test"),
    ],
)
def test_a_wrong_description_is_refused(
    tmp_path: Path, place: str, value: object, words: str
) -> None:
    path = described(tmp_path / "hall.json", **{place: value})
    with pytest.raises(DataError, match=r"hall\.json: ") as caught:
        footageset.read(path)
    assert words in caught.value.problem
