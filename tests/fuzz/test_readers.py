"""No reader fails or takes much, whatever a file holds and however small it is."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats import parquet_bombs
from tests.fuzz import bombs, seeds
from tests.fuzz.readers import READERS, accepts
from tests.fuzz.strategies import damaged

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whole files, in a directory for each reader."""
    directory = tmp_path_factory.mktemp("whole") / "seeds"
    seeds.make(directory)
    return directory


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.mark.parametrize("reader", READERS)
def test_whole_files_are_read(reader: str, whole: Path, work: Path) -> None:
    for path in sorted((whole / reader).iterdir()):
        copy = work / path.name
        copy.write_bytes(path.read_bytes())
        assert accepts(reader, copy, whole / "shared"), path


@pytest.mark.parametrize("reader", READERS)
@given(data=st.data())
def test_damaged_files_are_read_or_refused(
    reader: str, data: st.DataObject, whole: Path, work: Path
) -> None:
    source = data.draw(st.sampled_from(sorted((whole / reader).iterdir())))
    path = work / source.name
    path.write_bytes(data.draw(damaged(source.read_bytes(), source.suffix)))
    with warnings.catch_warnings(action="ignore"):
        accepts(reader, path, whole / "shared")


Case = tuple[str, str, Callable[[Path], bytes]]
CASES: dict[str, Case] = {
    "pose JSON, a pose in 38 days": ("pose JSON", "a.json", bombs.far_frame),
    "Parquet, 100,000,000 frames": ("pose Parquet", "a.parquet", bombs.long_clip),
    "Parquet, many clips of days": ("pose Parquet", "a.parquet", bombs.many_long_clips),
    "archive, long names": ("archive poses", "a.parquet", parquet_bombs.long_names),
    "archive, many joints": ("archive poses", "a.parquet", parquet_bombs.many_joints),
    "calibration, many statistics": ("calibration", "a.json", bombs.many_statistics),
    "NPY, 3 GB": ("label mask", "a.npy", bombs.large_array),
    "labels, an end in years": ("label intervals", "a.txt", bombs.far_interval),
    "trajectories, a pose in 38 days": ("trajectories", "a.csv", bombs.far_line),
    "NPZ of parts, zeros": ("extracted parts", "a.npz", bombs.zeros("keypoints")),
}


@pytest.mark.ci
@pytest.mark.parametrize("case", CASES)
def test_a_small_file_that_claims_much_is_refused_at_little_cost(
    case: str, whole: Path, work: Path
) -> None:
    reader, name, make = CASES[case]
    (work / name).write_bytes(make(whole))
    assert not accepts(reader, work / name, whole / "shared")
