"""Files on their way to an object store, whole or not there; and which files make a shard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stepvad.archive.storage import (
    Directory,
    StoredFile,
    camera_of,
    group_shards,
    partition_of,
)
from stepvad.errors import DataError

KILLED = """
import os, signal
from stepvad.archive.storage import Directory
with Directory("memory://scores").replacing("a.parquet") as temporary:
    temporary.write_text("personal")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def fail() -> str:
    raise DataError("expected poses, got none")


def test_a_process_killed_while_it_writes_leaves_no_scores_behind(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not [*tmp_path.iterdir()]


def test_a_file_is_uploaded_whole_or_not_at_all(in_memory: str) -> None:
    place = Directory.at(in_memory)
    with place.replacing("day/a") as temporary:
        temporary.write_text("longer than the second")
        temporary.write_text("short")
        assert not place.exists("day/a")
    assert place.read_small("day/a") == b"short"
    with pytest.raises(DataError), place.replacing("day/a") as temporary:
        temporary.write_text(fail())
    assert place.read_small("day/a") == b"short"


def test_small_files_of_one_directory_share_a_shard_up_to_its_size() -> None:
    files = [StoredFile(f"a/{number}.parquet", 4) for number in range(5)]
    files += [
        StoredFile("b/0.parquet", 30),
        StoredFile("b/1.parquet", 1),
        StoredFile("c.parquet", 1),
    ]
    made = group_shards(files, most_bytes=10)
    assert [[file.name for file in shard.files] for shard in made] == [
        ["a/0.parquet", "a/1.parquet"],
        ["a/2.parquet", "a/3.parquet"],
        ["a/4.parquet"],
        ["b/0.parquet"],
        ["b/1.parquet"],
        ["c.parquet"],
    ]
    assert [(shard.name, shard.size) for shard in made[:2]] == [
        ("a/0.parquet", 8),
        ("a/2.parquet", 8),
    ]


def test_a_file_that_comes_later_leaves_the_full_shards_alone() -> None:
    files = [StoredFile(f"a/{number}.parquet", 4) for number in range(5)]
    before, after = (
        group_shards(some, most_bytes=10)
        for some in (files, [*files, StoredFile("a/5.parquet", 4)])
    )
    assert before[:2] == after[:2]
    assert before[2].name == after[2].name


def test_recordings_of_a_site_are_scored_by_date_and_camera() -> None:
    name = "yard-20260501T235959-999.parquet"
    assert partition_of(f"yard/{name}") == partition_of(name) == "date=2026-05-01/camera=yard"
    assert partition_of(f"site=a/yard/{name}") == "site=a/date=2026-05-01/camera=yard"
    # other places stay as they are
    for place in ("date=2026-05-02/camera=yard", "gate", "a/b"):
        assert partition_of(f"{place}/{name}") == place
        assert partition_of(f"{place}/monday.parquet") == place
    shards = group_shards(
        [
            StoredFile(f"yard/yard-2026050{day}T{hour}0000-000.parquet", 4)
            for day in (1, 2)
            for hour in (10, 11)
        ]
    )
    assert [(shard.name, len(shard.files)) for shard in shards] == [
        ("date=2026-05-01/camera=yard/yard-20260501T100000-000.parquet", 2),
        ("date=2026-05-02/camera=yard/yard-20260502T100000-000.parquet", 2),
    ]


def test_a_camera_is_called_by_its_directories_without_the_date() -> None:
    name = "yard-20260501T100000-000.parquet"
    assert camera_of(f"yard/{name}") == camera_of(f"date=2026-05-01/camera=yard/{name}") == "yard"
    assert camera_of(f"site=a/date=2026-05-01/camera=yard/{name}") == "a/yard"
    assert camera_of("north/gate/monday.parquet") == "north/gate"
    assert camera_of("monday.parquet") == ""
