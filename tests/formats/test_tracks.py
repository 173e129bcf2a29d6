"""Our own track files in Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stepvad.errors import DataError
from stepvad.formats import read_clip, read_clips, tracks, write_clip, write_clips
from stepvad.poses import Clip
from stepvad.skeletons import COCO17, STEP18, Skeleton, of_size
from tests.formats.examples import clip, empty_clip, same, track


def table(**columns: object) -> pa.Table:
    """Two poses of one person with two joints, as another tool may write them."""
    rows: dict[str, object] = {
        "clip": ["a", "a"],
        "track": [1, 1],
        "frame": [4, 6],
        "x": [[1.0, 2.0], [3.0, 4.0]],
        "y": [[5.0, 6.0], [7.0, 8.0]],
        "confidence": [[0.1, 0.2], [0.3, 0.4]],
    }
    return pa.table(rows | columns)


def header(**changes: object) -> dict[str, object]:
    """The metadata that belongs to `table`."""
    return {
        "format": 1,
        "skeleton": {"name": "pair", "joints": ["a", "b"], "bones": [[0, 1]]},
        "clips": {"a": {"fps": 25, "n_frames": 9}},
    } | changes


def with_header(data: object, rows: pa.Table | None = None) -> pa.Table:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return (table() if rows is None else rows).replace_schema_metadata({"stepvad": text})


def read_table(tmp_path: Path, rows: pa.Table) -> list[Clip]:
    pq.write_table(rows, tmp_path / "other.parquet")
    return list(read_clips(tmp_path / "other.parquet"))


def error_of(tmp_path: Path, rows: pa.Table) -> str:
    with pytest.raises(DataError) as caught:
        read_table(tmp_path, rows)
    assert caught.value.problem.startswith(str(tmp_path / "other.parquet"))
    assert caught.value.hint
    return caught.value.problem


def few_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracks, "ROWS_AT_ONCE", 3)


def damage(path: Path, row_group: int) -> None:
    """Turn one bit in the last coordinates of a row group."""
    column = pq.ParquetFile(path).metadata.row_group(row_group).column(4)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("V", [1, 2, 17, 18])
@pytest.mark.parametrize("fps", [None, 12.5])
def test_one_clip_comes_back_bit_for_bit(tmp_path: Path, V: int, fps: float | None) -> None:
    written = clip("any name", fps, V).with_length(20)
    written.tracks[0].confidence[0, 0] = np.nan
    write_clip(written, tmp_path / "clip.parquet")
    assert same(read_clip(tmp_path / "clip.parquet"), written)


def test_joint_names_and_bones_come_back(tmp_path: Path) -> None:
    skeleton = Skeleton("dog", ("head", "tail", "paw"), ((0, 1), (1, 2)))
    written = Clip("rex", 30.0, 10, (track(1, [2, 3], V=3),), skeleton)
    write_clip(written, tmp_path / "rex.parquet")
    assert read_clip(tmp_path / "rex.parquet").skeleton == skeleton


def test_many_clips_share_a_file(tmp_path: Path) -> None:
    written = [clip(name, 10.0 + at, seed=at) for at, name in enumerate(["b", "a", "c"])]
    write_clips(written, tmp_path / "all.parquet")
    back = list(read_clips(tmp_path / "all.parquet"))
    assert all(map(same, back, written))
    assert len(back) == 3


def test_clips_span_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few_rows_at_once(monkeypatch)
    written = [clip(name, seed=at) for at, name in enumerate("abc")]
    write_clips(written, tmp_path / "all.parquet")
    assert pq.ParquetFile(tmp_path / "all.parquet").num_row_groups > 6
    assert all(map(same, read_clips(tmp_path / "all.parquet"), written))


def test_small_clips_share_a_row_group(tmp_path: Path) -> None:
    write_clips([clip(str(at)) for at in range(20)], tmp_path / "all.parquet")
    assert pq.ParquetFile(tmp_path / "all.parquet").num_row_groups == 1


def test_reading_goes_no_further_than_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_rows_at_once(monkeypatch)
    path = tmp_path / "all.parquet"
    write_clips([clip("a"), clip("b"), clip("c")], path)
    damage(path, row_group=6)
    clips = read_clips(path)
    assert next(clips).name == "a"
    with pytest.raises(DataError, match="expected a Parquet file of tracks"):
        list(clips)


def test_clips_without_poses_come_last(tmp_path: Path) -> None:
    write_clips([empty_clip("nobody"), clip("a")], tmp_path / "all.parquet")
    back = list(read_clips(tmp_path / "all.parquet"))
    assert same(back[0], clip("a"))
    assert same(back[1], empty_clip("nobody"))


def test_tracks_are_sorted_and_empty_ones_left_out(tmp_path: Path) -> None:
    tracks = (track(9, [1]), track(3, [2]), track(5, []))
    write_clip(Clip("a", None, 5, tracks), tmp_path / "a.parquet")
    assert [track.id for track in read_clip(tmp_path / "a.parquet").tracks] == [3, 9]


def test_the_same_clips_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.parquet", "two.parquet"):
        write_clips([clip("a"), clip("b")], tmp_path / name)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


def test_columns_are_what_the_documentation_says(tmp_path: Path) -> None:
    unsorted = Clip("a", None, 10, (track(11, [0, 5]), track(2, [3, 4])))
    write_clip(unsorted, tmp_path / "a.parquet")
    rows = pq.read_table(tmp_path / "a.parquet")
    kinds = {field.name: str(field.type) for field in rows.schema}
    joints = "fixed_size_list<element: float>[17]"
    assert kinds == {
        "clip": "string",
        "track": "int64",
        "frame": "int64",
        "x": joints,
        "y": joints,
        "confidence": joints,
    }
    column = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0).column(3)
    assert column.compression == "ZSTD"
    order = list(zip(rows["track"].to_pylist(), rows["frame"].to_pylist(), strict=True))
    assert order == sorted(order)


def test_an_error_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_clip(clip("a"), path)

    def interrupted() -> Any:
        yield clip("b")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_clips(interrupted(), path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]
    assert same(read_clip(path), clip("a"))


def test_clips_that_cannot_share_a_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "all.parquet"
    with pytest.raises(DataError, match="clip 'a': expected distinct clip names"):
        write_clips([clip("a"), clip("a")], path)
    with pytest.raises(DataError, match=r"clip 'b': expected skeleton coco17.*got step18"):
        write_clips([clip("a"), clip("b", V=18)], path)
    with pytest.raises(DataError, match="expected at least one clip, got none"):
        write_clips([], path)
    with pytest.raises(DataError, match="expected a place that can be written"):
        write_clip(clip("a"), tmp_path / "missing" / "a.parquet")
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="expected a place that can be written"):
        write_clip(clip("a"), tmp_path / "file" / "a.parquet")
    assert not path.exists()


def test_a_file_of_another_tool_needs_no_metadata(tmp_path: Path) -> None:
    [found] = read_table(tmp_path, table(extra=[0, 0]))
    assert (found.name, found.fps, found.n_frames) == ("a", None, 7)
    assert found.skeleton == of_size(2)
    assert found.tracks[0].keypoints[1].tolist() == [[3, 7], [4, 8]]
    assert found.tracks[0].confidence[0].tolist() == [np.float32(0.1), np.float32(0.2)]


@pytest.mark.parametrize(("V", "skeleton"), [(17, COCO17), (18, STEP18)])
def test_a_known_number_of_joints_has_names(tmp_path: Path, V: int, skeleton: Skeleton) -> None:
    numbers = [[1.0] * V] * 2
    [found] = read_table(tmp_path, table(x=numbers, y=numbers, confidence=numbers))
    assert found.skeleton == skeleton


def test_other_types_of_the_same_columns_are_read(tmp_path: Path) -> None:
    numbers = pa.array([[1, 2], [3, 4]], type=pa.large_list(pa.int32()))
    rows = table(
        clip=pa.array(["a", "a"]).dictionary_encode(),
        track=pa.array([1, 1], type=pa.uint8()),
        frame=pa.array([6, 4], type=pa.int16()),
        x=numbers,
        confidence=pa.array([[0.5, None], [1.0, 1.0]], type=pa.list_(pa.float64())),
    )
    [found] = read_table(tmp_path, rows)
    assert found.tracks[0].frames.tolist() == [4, 6]
    assert found.tracks[0].keypoints[..., 0].tolist() == [[3, 4], [1, 2]]
    assert np.isnan(found.tracks[0].confidence[1, 1])


def test_metadata_of_another_tool_is_read(tmp_path: Path) -> None:
    [found] = read_table(tmp_path, with_header(header()))
    assert (found.fps, found.n_frames, found.skeleton.bones) == (25, 9, ((0, 1),))


@pytest.mark.parametrize("name", ["clip", "track", "frame", "x", "y", "confidence"])
def test_a_missing_column_is_named(tmp_path: Path, name: str) -> None:
    assert f"column {name}: expected" in error_of(tmp_path, table().drop_columns([name]))
    twice = table().append_column(name, table()[name])
    assert f"column {name}: expected" in error_of(tmp_path, twice)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("clip", [1, 2], "column clip: expected text, got int64"),
        ("track", [1.0, 2.0], "column track: expected whole numbers, got double"),
        ("frame", ["1", "2"], "column frame: expected whole numbers, got string"),
        ("x", [1.0, 2.0], "column x: expected a list of V numbers in each row, got double"),
        ("y", [["a"], ["b"]], "column y: expected a list of V numbers in each row, got list"),
        ("clip", ["a", None], "column clip: expected a value in every row, got 1 empty ones"),
        ("track", [1, None], "column track: expected a value in every row, got 1 empty ones"),
        ("x", [[1.0, 2.0], None], "clip 'a', track 1, frame 6: expected 2 numbers in x, got None"),
        ("y", [[1.0, 2.0], [1.0, None]], "frame 6: expected 2 numbers in y, got [1.0, None]"),
        (
            "x",
            [[1.0, 2.0], [1.0]],
            "clip 'a', track 1, frame 6: expected 2 numbers in x, got [1.0]",
        ),
        (
            "x",
            pa.array([[], []], pa.list_(pa.float32())),
            "frame 4: expected some numbers in x, got []",
        ),
        ("confidence", [[1.0], [1.0]], "frame 4: expected 2 numbers in confidence, got [1.0]"),
        ("confidence", [None, [1.0, 1.0]], "frame 4: expected 2 numbers in confidence, got None"),
        ("x", [[1.0, 2.0], [np.nan, 0.0]], "clip 'a': track 1, frame 6, joint 0: expected coordin"),
        ("y", [[np.inf, 0.0], [1.0, 0.0]], "clip 'a': track 1, frame 4, joint 0: expected coordin"),
        ("y", [[1e300, 0.0], [1.0, 0.0]], "frame 4, joint 0: expected coordinates within"),
        ("frame", [4, 4], "clip 'a': track 1, frame 4: expected strictly increasing frames"),
        ("frame", [-1, 4], "clip 'a': track 1, frame -1: expected frames from 0"),
        ("frame", [4, 2**62], "expected frames from 0 to 100000000, got 4611686018427387904"),
        ("track", pa.array([2**64 - 1] * 2, pa.uint64()), "Integer value 18446744073709551615"),
    ],
)
def test_a_wrong_column_is_named(tmp_path: Path, name: str, values: object, said: str) -> None:
    assert said in error_of(tmp_path, table(**{name: values}))


def test_rows_of_a_clip_stand_together(tmp_path: Path) -> None:
    rows = pa.concat_tables([table(), table(clip=["b", "b"]), table(frame=[8, 9])])
    assert "clip 'a': expected its rows to be contiguous" in error_of(tmp_path, rows)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "expected JSON, got"),
        ([], "metadata: expected an object, got list"),
        (header(format=True), "metadata: expected version 1, got True"),
        (header(format=2), "expected version 1, got 2"),
        (header(skeleton=None), "metadata: expected an object as skeleton, got None"),
        (header(clips=[]), "metadata: expected an object as clips, got list"),
        (header(skeleton={"name": "x", "joints": [], "bones": []}), "expected at least one joint"),
        (
            header(skeleton={"name": "x", "joints": [1], "bones": []}),
            "text as skeleton.joints[0]",
        ),
        (
            header(skeleton={"name": "x", "joints": ["a"], "bones": [[0]]}),
            "length 2 as skeleton.bones[0]",
        ),
        (header(skeleton={"name": "x", "joints": ["a"], "bones": [[0, 1]]}), "bones must join"),
        (header(skeleton={"name": "x", "joints": ["a"], "bones": []}), "expected 1 numbers in x"),
        (header(clips={}), "clip 'a': expected only clips that the file's metadata lists"),
        (header(clips={"a": {}}), "metadata: expected clips['a'].fps, got none"),
        (header(clips={"a": {"fps": 0, "n_frames": 9}}), "as clips['a'].fps, got 0"),
        (header(clips={"a": {"fps": "5", "n_frames": 9}}), "as clips['a'].fps, got '5'"),
        (header(clips={"a": {"fps": None, "n_frames": -9}}), "clips['a'].n_frames, got -9"),
        (header(clips={"a": {"fps": None, "n_frames": 10**17}}), "expected up to 10,000,"),
        (header(clips={"a": {"fps": None, "n_frames": 5}}), "expected frames below 5, got 6"),
    ],
)
def test_metadata_that_is_wrong_is_refused(tmp_path: Path, data: object, said: str) -> None:
    assert said in error_of(tmp_path, with_header(data))


def test_rows_that_the_file_promises_must_be_there() -> None:
    file = SimpleNamespace(metadata=SimpleNamespace(num_rows=3))
    checked: Any = SimpleNamespace(file=file, batches=lambda *_, **__: iter(()))
    with pytest.raises(DataError, match="expected 3 rows, as the file says, got 0"):
        list(tracks.decode_rows(checked, 2, pa))
