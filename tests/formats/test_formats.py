"""Choosing files and formats: the functions of the package itself."""

from __future__ import annotations

import doctest
import io
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stepvad.errors import ConfigError, DataError, Progress
from stepvad.events.record import Review, event_facts, write_events
from stepvad.files import FREE_BYTES, read_array, read_arrays
from stepvad.formats import (
    FORMATS,
    PoseSummary,
    clip_files,
    json_poses,
    read_all,
    read_clip,
    read_clips,
    read_people,
    reading,
    tracks,
    write_clip,
    write_clips,
)
from stepvad.formats.reading import MAX_EMPTY_FRAMES, MAX_JOINTS, MAX_NAME, read_bytes
from stepvad.poses import Clip, Track
from stepvad.skeletons import of_size
from studies.chain import footageset
from tests.formats import parquet_bombs
from tests.formats.examples import clip, pose, result, same, track, write_json
from tests.pages import ROOT, blocks, run
from tests.site.records import record
from tests.site.sites import one_person

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
    with pytest.raises(DataError, match=r"expected a file that ends in .*\.json or \.parquet"):
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
    with pytest.raises(DataError, match=r"expected files that end in .*\.json or \.parquet"):
        read_clips(tmp_path)


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"format: expected one of auto.*got 'alphapos'"):
        read_clips(tmp_path, format="alphapos")


@pytest.mark.parametrize("name", FORMATS)
def test_every_row_of_the_table_names_a_format_with_suffixes(name: str) -> None:
    row = resolve_name(FORMATS[name])
    assert isinstance(row, reading.FileFormat)
    assert row.suffixes


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


def test_another_suffix_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ends in \.parquet or \.json, got \.csv"):
        write_clip(clip("a"), tmp_path / "a.csv")


@pytest.mark.parametrize("module", [json_poses, reading])
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
    with pytest.raises(DataError, match="expected distinct clip names"):
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
    found = PoseSummary.from_clips([clip, clip])
    assert (found.clips, found.poses, found.tracks) == (2, 2 * clip.n_poses, 2 * len(clip.tracks))
    assert found.fps == [clip.fps]
    mean = np.mean([track.confidence.mean() for track in clip.tracks])
    assert found.mean_confidence == pytest.approx(float(mean))


def test_a_spreadsheet_takes_no_text_for_a_formula() -> None:
    file = io.StringIO()
    said = Review("right", 5.0, "@ada")
    write_events([event_facts(record("=1+1"), said)], "csv", file)
    assert "'=1+1" in file.getvalue()
    assert file.getvalue().endswith(",right,5.0,5.0,'@ada\n")
    file = io.StringIO()
    write_events([event_facts(record("=1+1"), None)], "jsonl", file)
    facts = json.loads(file.getvalue())
    assert (facts["camera"], facts["marked"]) == ("=1+1", None)


HOURS_24 = 24 * 3600 * 30
"""Frames of a day at 30 a second."""


def test_a_day_with_two_poses_is_read(tmp_path: Path) -> None:
    frames = {"0": pose(), str(HOURS_24): pose()}
    found = read_clip(write_json(tmp_path / "a.json", {"1": frames}))
    assert found.n_frames == HOURS_24 + 1
    write_clip(found, tmp_path / "a.parquet")
    assert same(read_clip(tmp_path / "a.parquet"), found)


def test_days_without_anybody_are_read(tmp_path: Path) -> None:
    empty = Clip("night", 30.0, 3 * HOURS_24, ())
    write_clip(empty, tmp_path / "a.parquet")
    assert read_clip(tmp_path / "a.parquet").n_frames == 3 * HOURS_24


def test_frames_grow_with_poses(tmp_path: Path) -> None:
    person = track(1, [*range(0, 40_000_000, 100)], V=1)
    month = Clip("month", 15.0, 40_000_000, (person,), of_size(1))
    write_clip(month, tmp_path / "a.parquet")
    assert read_clip(tmp_path / "a.parquet").n_poses == 400_000


@pytest.mark.parametrize("frame", [MAX_EMPTY_FRAMES + 200, 99_999_999])
def test_a_pose_far_away_is_refused(frame: int, tmp_path: Path) -> None:
    path = write_json(tmp_path / "a.json", {"1": {"0": pose(), str(frame): pose()}})
    with pytest.raises(DataError, match=r"a\.json: expected up to 10,000,200 frames with 2 poses"):
        read_clip(path)
    far = track(1, [0, frame], V=1)
    joints = {name: [[0.0], [1.0]] for name in ("x", "y", "confidence")}
    rows = pa.table({"clip": ["a", "a"], "track": [1, 1], "frame": [0, frame], **joints})
    pq.write_table(rows, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="expected up to 10,000,200 frames"):
        read_clip(tmp_path / "a.parquet")
    write_clip(Clip("a", None, frame + 1, (far,), of_size(1)), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="expected up to 10,000,200 frames"):
        read_clip(tmp_path / "b.parquet")


def test_clips_of_a_file_share_what_they_may_be_long(tmp_path: Path) -> None:
    tracks.write((Clip(f"c{i}", 1.0, 6_000_000, ()) for i in range(2)), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="expected up to 10,000,000 frames with 0 poses"):
        list(read_clips(tmp_path / "a.parquet"))


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_poses_of_a_thousand_joints_are_read_and_of_more_are_not(
    suffix: str, tmp_path: Path
) -> None:
    def again(V: int) -> Clip:
        write_clip(clip("a", V=V), tmp_path / f"a{suffix}")
        return read_clip(tmp_path / f"a{suffix}")

    assert again(MAX_JOINTS).skeleton.V == MAX_JOINTS
    with pytest.raises(DataError, match="expected up to 1000 joints, got 1,001"):
        again(MAX_JOINTS + 1)


def test_long_names_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_clip(clip("x" * MAX_NAME), path)
    assert read_clip(path).name == "x" * MAX_NAME
    write_clip(clip("x" * (MAX_NAME + 1)), path)
    with pytest.raises(DataError, match="expected a text of length <= 1000") as error:
        read_clip(path)
    assert len(error.value.problem) < 400


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_pages_of_every_kind_are_read(
    version: str, compression: str, dictionary: bool, tmp_path: Path
) -> None:
    whole = clip("a", V=5)
    write_clip(whole, tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    options: dict[str, Any] = {"data_page_version": version, "compression": compression}
    for rows, page in ((3, 8), (100, 1 << 20)):
        pq.write_table(
            table.replace_schema_metadata(None),
            tmp_path / "b.parquet",
            use_dictionary=dictionary,
            row_group_size=rows,
            data_page_size=page,
            write_batch_size=1,
            **options,
        )
        found = read_clip(tmp_path / "b.parquet")
        assert same(found, Clip("a", None, 10, whole.tracks, of_size(5)))


def test_a_page_that_claims_more_than_it_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet_bombs.page_that_claims(tmp_path))
    with pytest.raises(DataError, match="expected a Parquet file of tracks, got: Corrupt ZSTD"):
        read_clip(path)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("bomb", "words"),
    [
        (parquet_bombs.many_poses, "expected rows of up to"),
        (parquet_bombs.many_joints, "expected up to 1000 joints, got 2,000"),
        (parquet_bombs.names_by_prefix, "expected plain or dictionary encoding"),
        (parquet_bombs.long_names, "expected names of up to 1000 characters"),
    ],
)
def test_rows_that_would_fill_memory_are_refused_by_the_footer(
    bomb: Callable[[Path], bytes], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(bomb(tmp_path))
    with pytest.raises(DataError, match=words):
        read_clip(path)


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(DataError, match="/dev/zero: expected a file of up to 1,000 bytes"):
        read_bytes(Path("/dev/zero"), most=1000)


def test_a_large_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataError, match="expected a file of up to 1,000 bytes"):
        read_bytes(path, most=1000)


def test_arrays_are_as_large_as_their_file() -> None:
    out = io.BytesIO()
    np.save(out, np.arange(6).reshape(2, 3))
    assert read_array(out.getvalue()).tolist() == [[0, 1, 2], [3, 4, 5]]
    for spoilt in (out.getvalue()[:-1], out.getvalue() + b"\0"):
        with pytest.raises(DataError, match=r"got: 4[79] bytes for int64 of shape \(2, 3\)"):
            read_array(spoilt)


def test_an_archive_that_unpacks_to_far_more_is_refused() -> None:
    out = io.BytesIO()
    n = FREE_BYTES + 1
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("a.npy", bytes(n))
    with pytest.raises(DataError, match="expected arrays of up to 134,217,728 bytes"):
        read_arrays(out.getvalue(), ["a"])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", b"")
    with pytest.raises(DataError, match="expected it stored or deflated"):
        read_arrays(out.getvalue(), ["a"])


def test_deep_metadata_are_refused(tmp_path: Path) -> None:
    write_clip(clip("a"), tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    deep = b"[" * 100_000
    pq.write_table(table.replace_schema_metadata({b"stepvad": deep}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: metadata: expected JSON"):
        read_clip(tmp_path / "b.parquet")
