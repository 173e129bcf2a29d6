"""Clips of many files, and what else is written of events and scores."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad import write_clip
from stepvad.errors import DataError
from stepvad.formats import eventtable, normal_set
from stepvad.formats.collection import read_all, read_people
from stepvad.formats.contents import PoseSummary
from stepvad.incidents.review import Review
from stepvad.poses import Clip, Track
from stepvad.progress import Progress
from tests.site.records import record
from tests.site.sites import one_person

UPSIDE_DOWN = np.array([1, -1], np.float32)


def turned(clip: Clip) -> Clip:
    """The same people upside down."""
    tracks = tuple(
        Track(track.id, track.frames, track.keypoints * UPSIDE_DOWN, track.confidence)
        for track in clip.tracks
    )
    return replace(clip, tracks=tracks)


def test_all_clips_are_read_with_word_of_every_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_clip(one_person(2.0), tmp_path / f"{name}.parquet")
    heard: list[Progress] = []
    found = [*read_all([tmp_path], report=heard.append)]
    assert len(found) == 2
    assert [(one.done, one.total, one.note) for one in heard] == [
        (1, 2, "a.parquet"),
        (2, 2, "b.parquet"),
    ]
    with pytest.raises(DataError, match="expected distinct clips"):
        [*read_all([tmp_path], distinct=True)]
    with pytest.raises(DataError, match="expected one clip, got 2"):
        read_people(tmp_path)


def test_people_who_stand_on_their_heads_are_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clip = one_person(2.0)
    write_clip(clip, tmp_path / "upright.parquet")
    write_clip(turned(clip), tmp_path / "turned.parquet")
    [*read_all([tmp_path / "upright.parquet"])]
    assert not caplog.text
    [*read_all([tmp_path / "turned.parquet"])]
    assert "have their ankles below the nose" in caplog.text


def test_what_pose_files_hold_is_counted() -> None:
    clip = one_person(2.0)
    found = PoseSummary.of([clip, clip])
    assert (found.clips, found.poses, found.tracks) == (2, 2 * clip.n_poses, 2 * len(clip.tracks))
    assert found.fps == [clip.fps]
    mean = np.mean([track.confidence.mean() for track in clip.tracks])
    assert found.mean_confidence == pytest.approx(float(mean))


def test_a_spreadsheet_takes_no_text_for_a_formula() -> None:
    file = io.StringIO()
    said = Review("right", 5.0, "@ada")
    eventtable.write([eventtable.facts(record("=1+1"), said)], "csv", file)
    assert "'=1+1" in file.getvalue()
    assert file.getvalue().endswith(",right,5.0,5.0,'@ada\n")
    file = io.StringIO()
    eventtable.write([eventtable.facts(record("=1+1"), None)], "jsonl", file)
    facts = json.loads(file.getvalue())
    assert (facts["camera"], facts["marked"]) == ("=1+1", None)


def test_the_normal_set_keeps_what_is_marked_and_no_more(tmp_path: Path) -> None:
    directory = normal_set.beside(tmp_path / "model.safetensors")
    normal_set.update(directory, {"one": one_person(2.0), "two": one_person(2.0)}, [])
    normal_set.update(directory, {}, ["one", "three"])
    assert [path.name for path in directory.iterdir()] == ["two.parquet"]
