"""Which files make a shard, and whose they are."""

from __future__ import annotations

from stepvad.archive.layout import shards
from stepvad.archive.storage import StoredFile


def test_small_files_of_one_directory_share_a_shard_up_to_its_size() -> None:
    files = [StoredFile(f"a/{number}.parquet", 4) for number in range(5)]
    files += [
        StoredFile("b/0.parquet", 30),
        StoredFile("b/1.parquet", 1),
        StoredFile("c.parquet", 1),
    ]
    made = shards(files, most_bytes=10)
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
        shards(some, most_bytes=10) for some in (files, [*files, StoredFile("a/5.parquet", 4)])
    )
    assert before[:2] == after[:2]
    assert before[2].name == after[2].name
