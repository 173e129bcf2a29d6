"""Track files in batches, as other engines hand them over: scored as the archive, to the bit."""

from __future__ import annotations

import pickle
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from stepvad.archive import score_files, scoring, trackfiles
from stepvad.archive.storage import Directory
from stepvad.archive.trackfiles import RowCheck
from stepvad.errors import DataError
from stepvad.formats.tracks import ClipFacts
from stepvad.poses import PoseRows
from tests.archive.archives import write_model
from tests.local_ray import local_ray


def archived(poses: Path, model: Path, url: str) -> pa.Table:
    """The scores that the archive has of the same poses, with the paths of its files."""
    scoring.score(str(poses), url, model, scoring.ScoreOptions(energies=True))
    place, tables = Directory.at(url), []
    for stored in place.files(".parquet"):
        with place.open(stored.name) as file:
            table = pa.parquet.read_table(file)
        paths = pa.repeat(str(poses / stored.name), len(table))
        tables.append(table.add_column(0, "path", paths))
    return pa.concat_tables(tables)


def paths_of(poses: Path) -> list[str]:
    return [*map(str, sorted(poses.rglob("*.parquet")))]


def test_files_in_a_batch_have_the_scores_of_the_archive(
    poses: Path, model: Path, in_memory: str
) -> None:
    score = pickle.loads(pickle.dumps(partial(score_files, model=str(model), energies=True)))
    expected, paths = archived(poses, model, in_memory), paths_of(poses)
    batch = pa.table({"path": paths, "size": range(6)})
    assert score({"path": np.array(paths)}).equals(expected)
    assert score({"path": batch["path"].to_pylist()}).equals(expected)
    urls = score({"path": [f"file://{path}" for path in paths]})
    assert urls.drop_columns("path").equals(expected.drop_columns("path"))
    assert urls["path"][0].as_py() == f"file://{paths[0]}"


def test_a_batch_without_files_has_the_columns(model: Path) -> None:
    table = score_files({"path": []}, model=model)
    assert table.column_names == ["path", "clip", "track_id", "frame", "A", "c", "seen"]
    assert len(table) == 0


def test_the_model_is_loaded_once_unless_it_changes(poses: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model.safetensors")
    before = trackfiles.load_detector.cache_info().misses
    first, again = (score_files({"path": paths_of(poses)[:1]}, model=model) for _ in range(2))
    assert trackfiles.load_detector.cache_info().misses == before + 1
    assert first.equals(again)
    write_model(model, seed=1)
    assert not first.equals(score_files({"path": paths_of(poses)[:1]}, model=model))


def test_a_file_that_cannot_be_scored_is_named(poses: Path, model: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"bad\.parquet: expected a Parquet file of tracks"):
        score_files({"path": [*paths_of(poses), bad]}, model=model)
    with pytest.raises(DataError, match="nowhere: expected a track file, got none"):
        score_files({"path": [tmp_path / "nowhere"]}, model=model)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray Data's own settings
@pytest.mark.skipif(find_spec("ray") is None, reason="needs the ray extra")
def test_ray_data_gives_the_scores_of_the_archive(poses: Path, model: Path, in_memory: str) -> None:
    with local_ray(2) as ray:
        files = ray.data.from_items([{"path": path} for path in paths_of(poses)])
        given = {"model": str(model), "energies": True}
        scored = files.map_batches(score_files, fn_kwargs=given, batch_size=2).to_arrow_refs()
        table = pa.concat_tables(ray.get(scored)).sort_by([("path", "ascending")])
    expected = archived(poses, model, in_memory)
    for name in ("path", "clip", "track_id", "frame", "A", "c", "seen"):
        assert (
            table.sort_by([("path", "ascending")])[name].to_pylist() == expected[name].to_pylist()
        )


TRACK, FRAME = np.repeat([0, 3], 8), np.tile(np.arange(8) * 2, 2)


def rows() -> PoseRows:
    joints = np.random.default_rng(0).normal(300, 40, (16, 3, 2)).astype(np.float32)
    return PoseRows(TRACK.copy(), FRAME.copy(), joints, np.ones((16, 3), np.float32))


@pytest.mark.parametrize(
    ("column", "at", "value", "message"),
    [
        ("track", slice(None), TRACK[::-1], "expected rows sorted by track and frame"),
        ("keypoints", (3, 1, 0), np.nan, "got nan"),
        ("keypoints", (3, 1, 1), 1e9, "expected coordinates within"),
        ("frame", 0, -1, "expected frames from 0"),
        ("frame", 1, FRAME[0], "strictly increasing"),
    ],
)
def test_rows_that_make_no_tracks_are_refused(
    column: str, at: object, value: object, message: str
) -> None:
    changed = rows()
    getattr(changed, column)[at] = value
    with pytest.raises(DataError, match=message):
        RowCheck(None)(changed)


def test_order_is_kept_from_part_to_part() -> None:
    check = RowCheck(None)
    assert check(rows()[slice(4, 12)]).track.tolist() == TRACK[4:12].tolist()
    with pytest.raises(DataError, match="expected rows sorted"):
        check(rows()[slice(0, 4)])


def test_a_clip_whose_length_nobody_told_ends_with_its_last_pose() -> None:
    check = RowCheck(None)
    check(rows()[slice(0, 4)])
    assert check.n_frames == 7
    check(rows()[slice(4, 16)])
    assert check.n_frames == 15


def test_frames_stay_inside_the_clip() -> None:
    assert RowCheck(ClipFacts(10.0, 15))(rows()).frame.max() == 14
    with pytest.raises(DataError, match="expected frames below 14, got 14"):
        RowCheck(ClipFacts(10.0, 14))(rows())
