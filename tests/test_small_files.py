"""A small file takes little memory and time, whatever it claims to hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import bombs, seeds
from tests.fuzz.gate import MEMORY, SECONDS, examined

pytestmark = pytest.mark.slow

Case = tuple[str, str, Callable[[Path], bytes]]
CASES: dict[str, Case] = {
    "pose JSON, a pose in 38 days": ("cli score", "a.json", bombs.far_frame),
    "Parquet, 100,000,000 frames": ("cli score", "a.parquet", bombs.long_clip),
    "Parquet, many clips of days": ("cli score", "a.parquet", bombs.many_long_clips),
    "Parquet, long names": ("cli inspect", "a.parquet", bombs.long_names),
    "Parquet, long names by prefix": ("cli inspect", "a.parquet", bombs.names_by_prefix),
    "Parquet, many joints": ("cli inspect", "a.parquet", bombs.many_joints),
    "Parquet, many poses": ("cli inspect", "a.parquet", bombs.many_poses),
    "Parquet, a page that claims": ("cli inspect", "a.parquet", bombs.page_that_claims),
    "archive, long names": ("archive poses", "a.parquet", bombs.long_names),
    "archive, many joints": ("archive poses", "a.parquet", bombs.many_joints),
    "archive, long names in scores": ("archive scores", "one.parquet", bombs.long_classes),
    "calibration, many levels": ("calibration", "a.json", bombs.many_levels),
    "calibration, many looks": ("calibration", "a.json", bombs.many_marked_levels),
    "calibration, deep": ("calibration", "a.json", bombs.deep_json),
    "manifest, deep": ("archive manifest", "a.json", bombs.deep_json),
    "events, deep": ("event lines", "a.jsonl", bombs.deep_json),
    "TOML, a key of 20,000 parts": ("site settings", "a.toml", bombs.dotted),
    "TOML, many keys of many parts": ("site settings", "a.toml", bombs.dotted_lines),
    "TOML, tables in tables": ("site settings", "a.toml", bombs.dotted_tables),
    "TOML, keys in a line": ("site settings", "a.toml", bombs.dotted_inside),
    "TOML, lists in lists": ("fleet settings", "a.toml", bombs.bracketed),
    "NPY, 3 GB": ("label mask", "a.npy", bombs.large_array),
    "labels, an end in years": ("label intervals", "a.txt", bombs.far_interval),
    "NPZ, zeros": ("box tracks", "a.npz", bombs.zeros("clip")),
    "NPZ of trajectories, zeros": ("packed trajectories", "a.npz", bombs.zeros("kpts_lo")),
    "trajectories, a pose in 38 days": ("trajectories", "a.csv", bombs.far_line),
    "NPZ of motions, zeros": ("motions", "a.npz", bombs.zeros("xyz")),
    "NPZ of parts, zeros": ("extracted parts", "a.npz", bombs.zeros("keypoints")),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole") / "seeds"
    seeds.make(directory)
    return directory


@pytest.mark.parametrize("case", CASES)
def test_a_small_file_that_claims_much_is_refused_at_little_cost(
    case: str, whole: Path, tmp_path: Path
) -> None:
    reader, name, make = CASES[case]
    facts = examined(reader, make(whole), name, whole, tmp_path)
    assert facts["end"] == "refused", facts["detail"]
    assert facts["grown"] < MEMORY
    assert facts["cpu_s"] < SECONDS


def test_flipped_bytes_in_parquet_take_little(whole: Path, tmp_path: Path) -> None:
    from tests.fuzz.gate import Worker

    worker = Worker("pose Parquet", whole, tmp_path)
    try:
        for number in range(300):
            path = tmp_path / "a.parquet"
            path.write_bytes(bombs.flipped(number)(whole))
            facts = worker.read(path)
            assert facts["end"] in ("accepted", "refused"), (number, facts["detail"])
            assert facts["grown"] < MEMORY, number
            assert facts["cpu_s"] < SECONDS, number
    finally:
        worker.close()
