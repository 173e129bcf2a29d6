"""How much a file may claim: real footage passes, however sparse, and claims beyond do not."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stepvad.errors import DataError
from stepvad.files import bounded, npyfile
from stepvad.formats import files, limits, read_clip, read_clips, tracks, write_clip
from stepvad.poses import Clip
from stepvad.skeletons import of_size
from tests.formats.examples import clip, pose, same, track, write_json
from tests.fuzz import bombs

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


@pytest.mark.parametrize("frame", [limits.MAX_EMPTY_FRAMES + 200, 99_999_999])
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
    path = tmp_path / f"a{suffix}"
    write_clip(clip("a", V=limits.MAX_JOINTS), path)
    assert read_clip(path).skeleton.V == limits.MAX_JOINTS
    write_clip(clip("a", V=limits.MAX_JOINTS + 1), path)
    with pytest.raises(DataError, match="expected up to 1000 joints, got 1,001"):
        read_clip(path)


def test_long_names_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_clip(clip("x" * limits.MAX_NAME), path)
    assert read_clip(path).name == "x" * limits.MAX_NAME
    write_clip(clip("x" * (limits.MAX_NAME + 1)), path)
    with pytest.raises(DataError, match="expected names of up to 1000 characters") as error:
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
    path.write_bytes(bombs.page_that_claims(tmp_path))
    with pytest.raises(DataError, match="expected a Parquet file of tracks, got: Corrupt ZSTD"):
        read_clip(path)


@pytest.mark.parametrize(
    ("bomb", "words"),
    [
        (bombs.many_poses, "expected rows of up to"),
        (bombs.many_joints, "expected up to 1000 joints, got 2,000"),
        (bombs.names_by_prefix, "expected plain or dictionary encoding"),
        (bombs.long_names, "expected names of up to 1000 characters"),
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
        files.read_bytes(Path("/dev/zero"), most=1000)


def test_a_large_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataError, match="expected a file of up to 1,000 bytes"):
        files.read_bytes(path, most=1000)


def test_arrays_are_as_large_as_their_file() -> None:
    out = io.BytesIO()
    np.save(out, np.arange(6).reshape(2, 3))
    assert npyfile.array(out.getvalue()).tolist() == [[0, 1, 2], [3, 4, 5]]
    for spoilt in (out.getvalue()[:-1], out.getvalue() + b"\0"):
        with pytest.raises(DataError, match=r"got: 4[79] bytes for int64 of shape \(2, 3\)"):
            npyfile.array(spoilt)


def test_an_archive_that_unpacks_to_far_more_is_refused() -> None:
    out = io.BytesIO()
    n = bounded.FREE_BYTES + 1
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("a.npy", bytes(n))
    with pytest.raises(DataError, match="expected arrays of up to 134,217,728 bytes"):
        npyfile.arrays(out.getvalue(), ["a"])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", b"")
    with pytest.raises(DataError, match="expected it stored or deflated"):
        npyfile.arrays(out.getvalue(), ["a"])


def test_deep_metadata_are_refused(tmp_path: Path) -> None:
    write_clip(clip("a"), tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    deep = b"[" * 100_000
    pq.write_table(table.replace_schema_metadata({b"stepvad": deep}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: expected JSON"):
        read_clip(tmp_path / "b.parquet")
