"""Clips and scores as tables, in and out."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stepvad
from stepvad import Clip, Detector, Skeleton, Track
from stepvad.errors import DataError, MissingExtraError
from stepvad.formats.tables import (
    SCORE_COLUMNS,
    clips_from_table,
    clips_to_table,
    scores_from_table,
    scores_to_table,
)
from stepvad.model.scoring import Scores


def a_track(number: int, frames: list[int], V: int = 17) -> Track:
    rng = np.random.default_rng(number)
    keypoints = rng.uniform(0, 500, (len(frames), V, 2)).astype(np.float32)
    confidence = rng.uniform(0, 1, (len(frames), V)).astype(np.float32)
    confidence[0, -1] = np.nan
    return Track(number, np.array(frames), keypoints, confidence)


@pytest.fixture
def clips() -> list[Clip]:
    door = Clip("door", 25.0, 40, (a_track(3, [0, 1, 2, 7]), a_track(9, [5, 6])))
    return [door, Clip("hall", None, 12, ()), Clip("yard", 12.5, 9, (a_track(1, [8]),))]


class Streaming:
    """A frame of another library: all that is known of it is how Arrow reads it."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def assert_equal_clips(found: list[Clip], expected: list[Clip]) -> None:
    facts = [(clip.name, clip.fps, clip.n_frames, clip.skeleton) for clip in expected]
    assert [(clip.name, clip.fps, clip.n_frames, clip.skeleton) for clip in found] == facts
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.digest() == theirs.digest()


def test_clips_come_back_from_a_table_as_they_were(clips: list[Clip]) -> None:
    table = clips_to_table(clips)
    assert table.column_names == ["clip", "track", "frame", "x", "y", "confidence"]
    assert table["frame"].to_pylist() == [0, 1, 2, 7, 5, 6, 8]
    assert_equal_clips(clips_from_table(table), clips)
    assert_equal_clips(clips_from_table(Streaming(table)), clips)
    assert_equal_clips(clips_from_table(clips_to_table(clips[0])), clips[:1])
    assert_equal_clips(clips_from_table(clips_to_table(clips[1])), clips[1:2])


def test_a_skeleton_of_ones_own_comes_back() -> None:
    hand = Skeleton("hand", ("wrist", "thumb", "index"), ((0, 1), (0, 2)))
    own = Clip("hand", 30.0, 5, (a_track(0, [2, 3], V=3),), hand)
    assert_equal_clips(clips_from_table(clips_to_table([own])), [own])


def test_a_track_file_read_by_arrow_is_a_table_of_clips(clips: list[Clip], tmp_path: Path) -> None:
    stepvad.write_clips(clips, tmp_path / "clips.parquet")
    found = clips_from_table(pq.read_table(tmp_path / "clips.parquet"), fps=25)
    assert [clip.digest() for clip in found] == [clips[0].digest(), clips[2].digest()]


def test_rows_of_others_come_in_any_order_with_columns_of_their_own(clips: list[Clip]) -> None:
    door, _, yard = clips
    table = clips_to_table([door, yard]).replace_schema_metadata()
    order = np.random.default_rng(0).permutation(len(table))
    shuffled = table.take(order).append_column("room", pa.array(["a"] * len(table)))
    rows = shuffled.to_pylist()  # lists of Python numbers, which Arrow makes doubles
    found = clips_from_table(pa.Table.from_pylist(rows), fps=50)
    assert {clip.name for clip in found} == {"door", "yard"}
    by_name = {clip.name: clip for clip in found}
    assert by_name["door"].digest() == door.digest()
    assert by_name["yard"].digest() == yard.digest()
    assert by_name["door"].fps == 50
    assert by_name["door"].n_frames == 8  # up to the last pose


def test_a_mapping_of_columns_is_a_table() -> None:
    (clip,) = clips_from_table(
        {
            "clip": ["a", "a"],
            "track": np.array([1, 1]),
            "frame": [4, 3],
            "x": [[0.0, 1.0], [2.0, 3.0]],
            "y": [[5, 6], [7, 8]],
            "confidence": [[1.0, None], [0.5, 0.5]],
        }
    )
    (track,) = clip.tracks
    assert track.frames.tolist() == [3, 4]
    assert track.keypoints[0].tolist() == [[2, 7], [3, 8]]
    assert np.isnan(track.confidence[1, 1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"track": None}, "column track: expected whole numbers, got none"),
        ({"track": [1.5]}, "column track: expected whole numbers, got double"),
        ({"clip": [3]}, "column clip: expected text, got int64"),
        ({"clip": pa.array([None], pa.string())}, "column clip: expected a value in every row"),
        ({"x": [[1.0]]}, "clip 'a', track 1, frame 2: expected 1 numbers in y"),
        ({"x": [[None, 1.0]]}, "clip 'a', track 1, frame 2: expected 2 numbers in x"),
        ({"x": [[float("inf"), 1.0]]}, "clip 'a': track 1, frame 2, joint 0: expected coord"),
        ({"frame": [-2]}, "clip 'a': track 1, frame -2: expected frames from 0"),
        ({"frame": pa.array([2**64 - 1], pa.uint64())}, "expected a table of poses, got dict"),
    ],
)
def test_a_table_that_holds_no_poses_is_refused(change: dict[str, Any], said: str) -> None:
    joints = [[1.0, 2.0]]
    columns = {"clip": ["a"], "track": [1], "frame": [2], "x": joints, "y": joints}
    columns |= {"confidence": joints} | change
    with pytest.raises(DataError, match=said):
        clips_from_table({name: given for name, given in columns.items() if given is not None})


@pytest.mark.parametrize("given", [3, "clips.parquet", [[1, 2]], None])
def test_what_is_no_table_is_refused(given: object) -> None:
    for read in (clips_from_table, scores_from_table):
        with pytest.raises(DataError, match=r"expected a table of .*give a pyarrow\.Table"):
            read(given)


def test_no_clips_make_no_table() -> None:
    with pytest.raises(DataError, match="expected at least one clip, got none"):
        clips_to_table([])


@pytest.fixture(scope="module")
def scores(small_model: Detector, walkers: list[Clip]) -> list[Scores]:
    nobody = Clip("nobody", 25.0, 30, ())
    found = [small_model.score(clip) for clip in (*walkers[:2], nobody)]
    seen = np.linspace(0, 1, len(found[0].A), dtype=np.float32)
    return [replace(found[0], windows=replace(found[0].windows, seen=seen)), *found[1:]]


def assert_equal_scores(found: list[Scores], expected: list[Scores]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.clip, ours.n_frames, ours.T) == (theirs.clip, theirs.n_frames, theirs.T)
        assert (ours.counts, ours.flat_windows) == (theirs.counts, theirs.flat_windows)
        for name in ("track_id", "frame", "c", "E", "A", "seen"):
            a, b = getattr(ours.windows, name), getattr(theirs.windows, name)
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(ours.frames, theirs.frames)


def test_scores_come_back_from_a_table_as_they_were(scores: list[Scores]) -> None:
    table = scores_to_table(scores)
    assert table.column_names == [*SCORE_COLUMNS, "seen", "energies"]
    assert len(table) == sum(len(one.windows) for one in scores) > 100
    np.testing.assert_array_equal(table["score"].to_numpy()[: len(scores[0].A)], scores[0].A)
    assert_equal_scores(scores_from_table(table), scores)
    assert_equal_scores(scores_from_table(Streaming(table)), scores)
    assert_equal_scores(scores_from_table(scores_to_table(scores[0])), scores[:1])
    assert_equal_scores(scores_from_table(scores_to_table(scores[2])), scores[2:])


def test_windows_of_young_tracks_stay_as_short_as_they_are(scores: list[Scores]) -> None:
    lacking = np.maximum(5 - np.arange(len(scores[0].A)), 0)
    young = replace(scores[0], windows=replace(scores[0].windows, lacking=lacking))
    table = scores_to_table([young, scores[1]])
    assert table.column_names == [*SCORE_COLUMNS, "seen", "lacking", "energies"]
    for found, expected in zip(scores_from_table(table), (young, scores[1]), strict=True):
        np.testing.assert_array_equal(found.windows.lacking, expected.windows.lacking)


def test_scores_without_metadata_need_the_length_of_a_window(scores: list[Scores]) -> None:
    bare = scores_to_table(scores[:2]).replace_schema_metadata().drop_columns(["energies"])
    with pytest.raises(DataError, match="metadata, or T, got neither"):
        scores_from_table(bare)
    for ours, theirs in zip(scores_from_table(bare, T=scores[0].T), scores[:2], strict=True):
        assert ours.T == theirs.T
        assert ours.n_frames == theirs.windows.frame.max() + 1
        assert ours.windows.E.shape == (len(theirs.A), 0)
        np.testing.assert_array_equal(ours.windows.seen, theirs.windows.seen)
    older = scores_from_table(bare.drop_columns(["seen"]), T=scores[0].T)
    for ours, theirs in zip(older, scores[:2], strict=True):
        assert set(ours.windows.seen.tolist()) == {1.0}
        np.testing.assert_array_equal(ours.frames, theirs.frames[: ours.n_frames])


EMPTY = pa.array([None], pa.int64())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"score": [float("nan")]}, "column score, row 0: expected a finite number, got nan"),
        ({"score": ["high"]}, "column score: expected numbers, got string"),
        ({"seen": [float("nan")]}, "column seen, row 0: expected a finite number, got nan"),
        ({"seen": ["most"]}, "column seen: expected numbers, got string"),
        ({"lacking": [0.5]}, "column lacking: expected whole numbers, got double"),
        ({"lacking": [12]}, "clip 'a': expected windows that lack 0 to 11 frames, got 12"),
        ({"lacking": [-1]}, "clip 'a': expected windows that lack 0 to 11 frames, got -1"),
        ({"track": [1.0]}, "column track: expected whole numbers, got double"),
        ({"track": EMPTY}, "column track: expected a value in every row, got 1 empty ones"),
        ({"frame": EMPTY}, "column frame: expected a value in every row, got 1 empty ones"),
        ({"lacking": EMPTY}, "column lacking: expected a value in every row, got 1 empty ones"),
        ({"clip": EMPTY.cast("string")}, "column clip: expected a value in every row"),
        ({"clip": None}, "column clip: expected text, got none"),
    ],
)
def test_a_table_that_holds_no_scores_is_refused(change: dict[str, Any], said: str) -> None:
    columns = {"clip": ["a"], "track": [1], "frame": [2], "confidence": [0.5], "score": [3.0]}
    columns |= change
    with pytest.raises(DataError, match=said):
        scores_from_table({k: given for k, given in columns.items() if given is not None}, T=12)


@pytest.mark.parametrize(
    "metadata",
    [
        b"{",
        b'{"format": 2, "scores": {}}',
        b'{"format": 1, "scores": {"a": {"n_frames": 3}}}',
        b'{"format": 1, "scores": {"a": {"n_frames": 9, "T": 2, "flat_windows": 0, '
        b'"counts": {"poses": "2"}}}}',
        b'{"format": 1, "scores": {"b": {"n_frames": 9, "T": 2, "flat_windows": 0, "counts": {}}}}',
        b'{"format": 1, "scores": {"a": {"n_frames": 2, "T": 2, "flat_windows": 0, "counts": {}}}}',
    ],
)
def test_metadata_that_do_not_fit_are_refused(metadata: bytes) -> None:
    columns = {"clip": ["a"], "track": [1], "frame": [2], "confidence": [0.5], "score": [3.0]}
    table = pa.table(columns).replace_schema_metadata({b"stepvad": metadata})
    with pytest.raises(DataError):
        scores_from_table(table, T=12)


def test_scores_of_one_clip_twice_make_no_table(scores: list[Scores]) -> None:
    with pytest.raises(DataError, match="expected scores of distinct clips by one model"):
        scores_to_table([scores[0], scores[0]])
    with pytest.raises(DataError, match="got clips none"):
        scores_to_table([])


def test_without_pyarrow_the_extra_is_named(
    clips: list[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.compute", None)
    with pytest.raises(MissingExtraError, match="a table needs the parquet extra"):
        clips_to_table(clips)
    with pytest.raises(MissingExtraError, match="a table needs the parquet extra"):
        clips_from_table({})


def test_pandas_frames_are_tables(clips: list[Clip], scores: list[Scores]) -> None:
    pandas = pytest.importorskip("pandas")
    frame = clips_to_table(clips).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    found = clips_from_table(frame[frame["clip"] == "door"], fps=25.0)
    assert [clip.digest() for clip in found] == [clips[0].digest()]
    assert found[0].fps == 25.0
    scored = scores_to_table(scores[:2]).to_pandas()
    for ours, theirs in zip(scores_from_table(scored, T=scores[0].T), scores[:2], strict=True):
        np.testing.assert_array_equal(ours.A, theirs.A)
        np.testing.assert_array_equal(ours.windows.E, theirs.windows.E)
