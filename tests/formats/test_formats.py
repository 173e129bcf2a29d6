"""Choosing files and formats: the functions of the package itself."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from stepvad.errors import ConfigError, DataError
from stepvad.formats import (
    alphapose,
    clip_files,
    jsonfile,
    read_clip,
    read_clips,
    write_clip,
    write_clips,
)
from studies.chain import footageset
from tests.formats.examples import clip, pose, result, same, write_json
from tests.pages import ROOT, blocks, run

PAGE = ROOT / "docs" / "reference" / "file-formats.md"


def test_a_directory_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    write_clip(clip("from_parquet"), tmp_path / "b.parquet")
    write_json(tmp_path / "c_alphapose_tracked_person.json", {"1": {"0": pose()}})
    write_json(tmp_path / "a.json", [result(0, 1)])
    write_json(tmp_path / ".hidden.json", {})
    (tmp_path / "notes.txt").write_text("not a clip")
    (tmp_path / "folder.json").mkdir()
    assert [clip.name for clip in read_clips(tmp_path)] == ["a", "from_parquet", "c"]
    expected = ["a.json", "b.parquet", "c_alphapose_tracked_person.json"]
    assert [path.name for path in clip_files(tmp_path)] == expected
    assert [path.name for path in clip_files(tmp_path, format="tracks")] == ["b.parquet"]


def test_a_directory_is_read_clip_by_clip(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"1": {"0": pose()}})
    (tmp_path / "b.json").write_text("{")
    clips = read_clips(tmp_path)
    assert next(clips).name == "a"
    with pytest.raises(DataError, match=r"b\.json: expected JSON"):
        next(clips)


def test_paths_may_be_text(tmp_path: Path) -> None:
    write_clip(clip("a"), str(tmp_path / "a.parquet"))
    assert same(read_clip(str(tmp_path / "a.parquet")), clip("a"))


def test_suffixes_may_be_in_capitals(tmp_path: Path) -> None:
    write_clip(clip("a"), tmp_path / "A.PARQUET")
    write_clip(clip("B"), tmp_path / "B.JSON")
    assert [clip.name for clip in read_clips(tmp_path)] == ["a", "B"]


def test_a_format_that_is_named_needs_no_suffix(tmp_path: Path) -> None:
    write_json(tmp_path / "poses", {"1": {"0": pose()}})
    assert read_clip(tmp_path / "poses", format="alphapose").name == "poses"
    with pytest.raises(DataError, match=r"expected a file that ends in \.json or \.parquet"):
        read_clip(tmp_path / "poses")


def test_the_callers_rate_is_taken(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"1": {"0": pose()}})
    assert read_clip(tmp_path / "a.json").fps is None
    assert read_clip(tmp_path / "a.json", fps=15).fps == 15
    with pytest.raises(DataError, match="fps must be a positive number"):
        read_clip(tmp_path / "a.json", fps=0)


def test_what_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.json: expected a readable file, got: No such file"):
        read_clips(tmp_path / "none.json")
    with pytest.raises(DataError, match=r"expected files that end in \.json or \.parquet"):
        read_clips(tmp_path)


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"format: expected one of auto.*got 'alphapos'"):
        read_clips(tmp_path, format="alphapos")  # type: ignore[arg-type]  # wrong on purpose


def test_read_clip_wants_exactly_one(tmp_path: Path) -> None:
    write_clips([clip("a"), clip("b")], tmp_path / "two.parquet")
    with pytest.raises(DataError, match="expected one clip, got more"):
        read_clip(tmp_path / "two.parquet")


def test_two_files_of_one_clip_are_refused(tmp_path: Path) -> None:
    write_clip(clip("a"), tmp_path / "a.parquet")
    write_clip(clip("a"), tmp_path / "a.json")
    with pytest.raises(DataError, match="clip 'a': expected distinct clip names"):
        list(read_clips(tmp_path))


def test_clips_go_into_a_directory_one_file_each(tmp_path: Path) -> None:
    written = [clip(name, 25.0) for name in ("a", "b.c")]
    write_clips(iter(written), tmp_path / "new" / "clips")
    names = [path.name for path in clip_files(tmp_path / "new" / "clips")]
    assert names == ["a.parquet", "b.c.parquet"]
    assert all(map(same, read_clips(tmp_path / "new" / "clips"), written))


@pytest.mark.parametrize("name", ["", ".", "..", "../up", "a/b", "a\\b", "a\0b", "c:d"])
def test_a_clip_name_cannot_leave_the_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="expected a name that can be a file name"):
        write_clips([clip(name)], tmp_path / "clips")
    assert list((tmp_path / "clips").iterdir()) == []


def test_a_clip_is_not_overwritten_by_its_namesake(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="clip 'a': expected distinct clip names"):
        write_clips([clip("a"), clip("a")], tmp_path / "clips")


def test_a_file_is_not_a_directory_to_write_into(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(DataError, match=r"expected a \.parquet file or a directory"):
        write_clips([clip("a")], tmp_path / "taken")


def test_a_directory_that_cannot_be_made_keeps_the_words_of_an_error_without_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, **how: object) -> None:
        raise OSError("the drive is asleep")

    monkeypatch.setattr(Path, "mkdir", fail)
    with pytest.raises(DataError, match="or a directory, got: the drive is asleep"):
        write_clips([clip("a")], tmp_path / "clips")


def test_another_suffix_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ends in \.parquet or \.json, got \.csv"):
        write_clip(clip("a"), tmp_path / "a.csv")


@pytest.mark.parametrize("module", [alphapose, jsonfile])
def test_examples_in_docstrings_hold(module: ModuleType) -> None:
    failed, attempted = doctest.testmod(module)
    assert (failed, attempted > 0) == (0, True)


def test_the_python_on_the_page_of_formats_runs(tmp_path: Path) -> None:
    [block] = blocks(PAGE)
    assert run(block, tmp_path) == "2 25.0\n"
    assert read_clip(tmp_path / "lobby.parquet").n_frames == 100


def test_the_json_on_the_page_of_formats_is_read(tmp_path: Path) -> None:
    found = re.findall("```json\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    header, tracked, results, openpose, ultralytics, footage = found
    assert set(json.loads(header)) == {"format", "skeleton", "clips"}
    for text in (tracked, results):
        (tmp_path / "a.json").write_text(text.replace(', "…"', ""))
        track = read_clip(tmp_path / "a.json").tracks[0]
        assert (track.id, track.frames.tolist()) == (3, [7])
        assert track.keypoints[0, 0].tolist() == [310.5, 92.0]
    lobby = tmp_path / "lobby"
    lobby.mkdir()
    (lobby / "lobby_000000000007_keypoints.json").write_text(openpose.replace(', "…"', ""))
    (tmp_path / "b.json").write_text(ultralytics.replace(', "…"', ""))
    assert read_clip(lobby).n_frames == 8  # a person in one frame is not tracked
    track = read_clip(tmp_path / "b.json").tracks[0]
    assert (track.id, track.frames.tolist()) == (3, [0])
    assert track.keypoints[0, 0].tolist() == [310.5, 92.0]
    (tmp_path / "hall.json").write_text(footage)
    assert [*footageset.read(tmp_path / "hall.json").clips] == [
        *("monday", "tuesday", "fall-1", "fight-1")
    ]
