"""An archive is scored as its clips are, once, and whatever is wrong with some of it."""

from __future__ import annotations

import json
import resource
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stepvad import Detector
from stepvad.archive import scorefile, scoring
from stepvad.archive.scorefile import ClipWindows, read_facts
from stepvad.archive.scoring import (
    MANIFEST_NAME,
    Manifest,
    ScoreOptions,
    read_manifest,
)
from stepvad.archive.storage import ArchiveShard, Directory, StoredFile, group_shards
from stepvad.codec import to_plain
from stepvad.config import Config
from stepvad.errors import DataError, Progress, StepvadError
from stepvad.formats import read_clip, write_clip
from stepvad.model import modelfile
from stepvad.poses import Clip
from tests.archive.archives import contents, write_model
from tests.formats import parquet_bombs


def table_of(place: Directory, name: str) -> Any:
    with place.open(name) as file:
        return pq.read_table(file)


def in_memory_of(url: str, root: Path) -> Directory:
    """The same files in the memory of this process."""
    place = Directory.at(url)
    for name, data in contents(root).items():
        with place.replacing(name) as temporary:
            temporary.write_bytes(data)
    return place


def everything(url: str) -> dict[str, bytes]:
    place = Directory.at(url)
    names = [*(stored.name for stored in place.files(".parquet")), MANIFEST_NAME]
    return {name: place.read_small(name) or b"" for name in names}


def test_an_archive_has_the_scores_of_its_clips_to_the_bit(
    poses: Path, clips: list[Clip], model: Path, in_memory: str
) -> None:
    summary = scoring.score(str(poses), in_memory, model, ScoreOptions(energies=True))
    assert (summary.shards, summary.kept, summary.failed) == (6, 0, {})
    detector = Detector.load(model, threads=1)
    place = Directory.at(in_memory)
    files = {Path(stored.name).stem: stored.name for stored in place.files(".parquet")}
    assert len(files) == len(clips) == 6
    for clip in clips:
        expected, table = detector.score(clip), table_of(place, files[clip.name])
        assert table.column_names == ["clip", "track_id", "frame", "A", "c", "seen", "E"]
        assert set(table["clip"].to_pylist()) == {clip.name}
        for name in ("track_id", "frame", "A", "c", "seen"):
            assert table[name].to_numpy().tobytes() == getattr(expected.windows, name).tobytes(), (
                name
            )
        energies = table["E"].combine_chunks().flatten().to_numpy()
        assert energies.tobytes() == expected.windows.E.tobytes()
        with place.open(files[clip.name]) as file:
            facts = read_facts(file, "x")
        assert facts.clips == {clip.name: ClipWindows(clip.fps, clip.n_frames, len(table))}
        assert facts.counts["poses"] == clip.n_poses
    n_rows = sum(len(table_of(place, name)) for name in files.values())
    assert summary.windows == summary.scored == n_rows


def test_row_groups_and_group_of_files_change_no_score(
    clips: list[Clip], model: Path, in_memory: str, tmp_path: Path
) -> None:
    """Tracks that span row groups of 50 rows, and two files in one shard."""
    (tmp_path / "yard").mkdir()
    for clip in clips[:2]:
        whole = tmp_path / "whole.parquet"
        write_clip(clip, whole)
        table = pq.read_table(whole)
        pq.write_table(table, tmp_path / "yard" / f"{clip.name}.parquet", row_group_size=50)
    whole.unlink()
    summary = scoring.score(str(tmp_path), in_memory, model)
    assert summary.shards == 1
    place = Directory.at(in_memory)
    (stored,) = place.files(".parquet")
    table = table_of(place, stored.name)
    assert "E" not in table.column_names
    detector = Detector.load(model, threads=1)
    for clip in clips[:2]:
        own = table.filter(pa.compute.equal(table["clip"], clip.name))
        assert own["A"].to_numpy().tobytes() == detector.score(clip).A.tobytes()


def test_scores_are_written_in_row_groups_while_a_shard_is_scored(
    clips: list[Clip], model: Path, in_memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for clip in clips[:3]:
        write_clip(clip, tmp_path / f"{clip.name}.parquet")
    files = []
    for row_group in (scorefile.ROW_GROUP, 100):
        monkeypatch.setattr(scorefile, "ROW_GROUP", row_group)
        place = Directory.at(f"{in_memory}/{row_group}")
        scoring.score(str(tmp_path), place.url, model)
        (stored,) = place.files(".parquet")
        with place.open(stored.name) as file:
            scores = pq.ParquetFile(file)
            files.append((scores.num_row_groups, scores.read()))
    assert [n_groups for n_groups, _ in files] == [1, 3]
    assert files[0][1].equals(files[1][1])


def test_what_is_done_is_kept_and_what_changed_is_scored_again(
    poses: Path, clips: list[Clip], model: Path, in_memory: str, tmp_path: Path
) -> None:
    copy = tmp_path / "poses"
    shutil.copytree(poses, copy)
    first = scoring.score(str(copy), in_memory, model)
    before = everything(in_memory)
    again = scoring.score(str(copy), in_memory, model)
    assert (again.kept, again.scored, again.windows) == (6, 0, first.windows)
    assert everything(in_memory) == before
    changed = next(copy.rglob("*.parquet"))
    clip = read_clip(changed)
    write_clip(Clip(clip.name, clip.fps, clip.n_frames, clip.tracks[1:], clip.skeleton), changed)
    after = scoring.score(str(copy), in_memory, model)
    assert after.kept == 5
    assert 0 < after.scored < first.windows
    name = str(changed.relative_to(copy))
    differing = {key for key, data in everything(in_memory).items() if data != before[key]}
    assert differing == {name}


def test_scores_of_a_file_that_shares_another_shard_now_are_removed(
    clips: list[Clip], model: Path, in_memory: str, tmp_path: Path
) -> None:
    for clip in clips[2:4]:
        write_clip(clip, tmp_path / f"{clip.name}.parquet")
    scoring.score(str(tmp_path), in_memory, model)
    write_clip(clips[0], tmp_path / "00.parquet")  # now the first of the shard
    scoring.score(str(tmp_path), in_memory, model)
    assert [stored.name for stored in Directory.at(in_memory).files(".parquet")] == ["00.parquet"]
    table = table_of(Directory.at(in_memory), "00.parquet")
    assert len(set(table["clip"].to_pylist())) == 3


def test_another_model_does_not_mix(
    poses: Path, model: Path, in_memory: str, tmp_path: Path
) -> None:
    scoring.score(str(poses), in_memory, model)
    before = everything(in_memory)
    other = write_model(tmp_path / "other.safetensors", seed=1)
    with pytest.raises(StepvadError, match="expected scores with model_sha256 = ") as refused:
        scoring.score(str(poses), in_memory, other)
    assert refused.value.hint == "choose another directory for other scores"
    with pytest.raises(StepvadError, match="with energies = True, got some with False"):
        scoring.score(str(poses), in_memory, model, ScoreOptions(energies=True))
    assert everything(in_memory) == before
    Directory.at(in_memory).delete("_manifest.json")  # the files themselves say whose they are
    assert scoring.score(str(poses), in_memory, other).kept == 0


def test_a_bad_file_is_told_of_and_does_not_stop_the_others(
    clips: list[Clip], model: Path, in_memory: str, tmp_path: Path
) -> None:
    yard = tmp_path / "poses" / "yard"
    yard.mkdir(parents=True)
    for number, clip in enumerate(clips[:3]):
        write_clip(clip, yard / f"{number}.parquet")
    whole = (yard / "1.parquet").read_bytes()
    (yard / "1.parquet").write_bytes(whole[: len(whole) // 2])
    (yard / "0.parquet").write_bytes(b"")
    (yard / "3.parquet").write_bytes(whole[:2000] + bytes(8) + whole[2008:])  # in a page
    summary = scoring.score(str(tmp_path / "poses"), in_memory, model)
    assert [*summary.failed] == ["yard/0.parquet", "yard/1.parquet", "yard/3.parquet"]
    assert all("expected a Parquet file of tracks" in text for text in summary.failed.values())
    place = Directory.at(in_memory)
    table = table_of(place, "yard/0.parquet")
    assert set(table["clip"].to_pylist()) == {clips[2].name}
    found = read_manifest(place)
    assert found is not None
    assert found.failed == summary.failed
    (yard / "0.parquet").unlink()
    (yard / "3.parquet").unlink()
    (yard / "1.parquet").write_bytes(whole)
    mended = scoring.score(str(tmp_path / "poses"), in_memory, model)
    assert mended.failed == {}
    found = read_manifest(place)
    assert found is not None
    assert found.failed == {}
    assert len(set(table_of(place, "yard/1.parquet")["clip"].to_pylist())) == 2


def task_of(poses: Path, scores: Path, model: Path, names: list[str]) -> scoring.ShardTask:
    """A shard of these files."""
    job = scoring.Job(
        poses=Directory.at(str(poses)),
        scores=Directory.at(str(scores)),
        model=model,
        model_sha256=modelfile.sha256(model),
        engine="onnxruntime",
    )
    return scoring.ShardTask(job, ArchiveShard(tuple(StoredFile(name, 1) for name in names)))


def test_a_file_that_cannot_be_read_is_not_held_against_others(
    clips: list[Clip], model: Path, tmp_path: Path
) -> None:
    poses = tmp_path / "poses"
    poses.mkdir()
    write_clip(clips[0], poses / "a.parquet")
    write_clip(clips[1], poses / "d.parquet")
    (poses / "c.parquet").symlink_to("/proc/self/mem")  # opens, and fails when it is read
    names = ["a.parquet", "gone.parquet", "c.parquet", "d.parquet"]
    outcome = scoring.score_shard(task_of(poses, tmp_path / "scores", model, names))
    assert [*outcome.failed] == ["gone.parquet", "c.parquet"]
    assert all("expected a file that can be read" in text for text in outcome.failed.values())
    assert outcome.facts is not None
    assert {*outcome.facts.clips} == {clips[0].name, clips[1].name}


def test_a_file_that_takes_too_much_memory_is_not_held_against_others(
    clips: list[Clip], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poses = tmp_path / "poses"
    poses.mkdir()
    write_clip(clips[0], poses / "a.parquet")
    write_clip(clips[1], poses / "d.parquet")
    # more than any test before it took: the memory pool keeps that, and gives it without asking
    (poses / "b.parquet").write_bytes(parquet_bombs.page_that_claims(tmp_path, 2_000_000_000))
    monkeypatch.setattr(scoring, "MEMORY_BYTES", 1 << 28)
    names = [f"{name}.parquet" for name in "abd"]
    outcome = scoring.score_shard(task_of(poses, tmp_path / "scores", model, names))
    assert [*outcome.failed] == ["b.parquet"]
    assert "malloc of size 2000000000 failed" in outcome.failed["b.parquet"]
    assert outcome.facts is not None
    assert {*outcome.facts.clips} == {clips[0].name, clips[1].name}


def test_scores_that_cannot_be_written_are_not_held_against_poses(
    clips: list[Clip], model: Path, tmp_path: Path
) -> None:
    poses = tmp_path / "poses"
    poses.mkdir()
    write_clip(clips[0], poses / "a.parquet")
    task = task_of(poses, tmp_path / "scores", model, ["a.parquet"])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2, before[1]))
    try:
        outcome = scoring.score_shard(task)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert outcome.facts is None
    assert "expected a place that can be written" in outcome.failed["a.parquet"]
    assert "a.parquet: expected a Parquet" not in outcome.failed["a.parquet"]
    assert not [*(tmp_path / "scores").iterdir()]


def test_a_file_that_failed_is_tried_again_even_if_it_is_the_same(
    clips: list[Clip], model: Path, in_memory: str, tmp_path: Path
) -> None:
    write_clip(clips[0], tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    for _ in range(2):
        summary = scoring.score(str(tmp_path), in_memory, model)
        assert (summary.kept, [*summary.failed]) == (0, ["b.parquet"])


def test_two_clips_of_one_name_in_a_shard_are_told_of(
    clips: list[Clip], model: Path, in_memory: str, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        write_clip(clips[0], tmp_path / f"{name}.parquet")
    summary = scoring.score(str(tmp_path), in_memory, model)
    assert [*summary.failed] == ["b.parquet"]
    assert "got it twice" in summary.failed["b.parquet"]


def test_poses_and_scores_may_both_be_in_memory_and_a_broken_result_is_made_again(
    poses: Path, model: Path, in_memory: str
) -> None:
    source = in_memory_of(f"{in_memory}/poses", poses)
    target = f"{in_memory}/scores"
    scoring.score(source.url, target, model)
    before = everything(target)
    place = Directory.at(target)
    name = place.files(".parquet")[0].name
    with place.replacing(name) as temporary:
        temporary.write_bytes(before[name][:-20])
    assert scoring.score(source.url, target, model).kept == 5
    assert everything(target) == before
    assert scoring.score(source.url, target, model, ScoreOptions(quick=True)).kept == 6


def test_quick_believes_names_and_sizes_and_nothing_else(
    clips: list[Clip], model: Path, in_memory: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.parquet"
    write_clip(clips[0], file)
    scoring.score(str(tmp_path), in_memory, model)
    data = bytearray(file.read_bytes())
    data[2000] ^= 1
    file.write_bytes(data)
    assert scoring.score(str(tmp_path), in_memory, model, ScoreOptions(quick=True)).kept == 1
    assert scoring.score(str(tmp_path), in_memory, model).kept == 0
    file.write_bytes(data + b"x")
    assert scoring.score(str(tmp_path), in_memory, model, ScoreOptions(quick=True)).kept == 0


def test_progress_counts_megabytes_and_windows(
    poses: Path, model: Path, in_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "MEGABYTE", 1)
    heard: list[Progress] = []
    summary = scoring.score(str(poses), in_memory, model, report=heard.append)
    size = sum(path.stat().st_size for path in poses.rglob("*.parquet"))
    last = heard[-1]
    assert (last.stage, last.done, last.total) == ("scoring", size, size)
    assert last.note == f"{summary.windows:,} windows"


@pytest.mark.parametrize(
    ("poses_at", "scores_at", "message"),
    [
        ("poses", "poses", "expected a directory outside the poses"),
        ("poses", "poses/scores", "expected a directory outside the poses"),
        ("empty", "scores", "expected pose files that end in .parquet, got none"),
        ("nothing://x", "scores", "expected a path, or a URL that fsspec opens"),
    ],
)
def test_places_that_make_no_sense_are_refused(
    poses: Path, model: Path, tmp_path: Path, poses_at: str, scores_at: str, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    places = {"poses": poses, "empty": tmp_path / "empty", "nothing://x": "nothing://x"}
    target = poses / scores_at.removeprefix("poses").lstrip("/")
    target = tmp_path / "scores" if scores_at == "scores" else target
    with pytest.raises(StepvadError, match=message):
        scoring.score(str(places[poses_at]), str(target), model)
    assert not (tmp_path / "scores" / "x.parquet").exists()


def test_a_model_that_changes_meanwhile_is_noticed(
    poses: Path, model: Path, in_memory: str
) -> None:
    job = scoring.Job(
        poses=Directory.at(str(poses)),
        scores=Directory.at(in_memory),
        model=model,
        model_sha256="0" * 64,
        engine="onnxruntime",
    )
    (first, *_) = group_shards(job.poses.files(".parquet"))
    outcome = scoring.score_shard(scoring.ShardTask(job, first))
    assert outcome.facts is None
    assert "expected the model that the run started with" in next(iter(outcome.failed.values()))


def test_the_manifest_tells_the_model_and_score_files_their_inputs(
    poses: Path, model: Path, in_memory: str
) -> None:
    scoring.score(str(poses), in_memory, model)
    place = Directory.at(in_memory)
    found = read_manifest(place)
    assert found is not None
    assert (found.model, found.engine, found.state) == ("model.safetensors", "onnxruntime", "done")
    assert [view["T"] for view in found.views] == [12]
    first, *_ = place.files(".parquet")
    with place.open(first.name) as file:
        (told,) = read_facts(file, "x").inputs
    assert (told.name, told.size) == (first.name, (poses / first.name).stat().st_size)
    assert told.sha256 == modelfile.sha256(poses / first.name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "manifest: expected version 1, got 2"),
        ({"model": 7}, "expected a text as model"),
        ({"state": "ready"}, "state"),
        ({"failed": []}, "expected an object"),
        ({"failed": {"a": 1}}, "expected a text as failed['a'], got 1"),
    ],
)
def test_a_manifest_of_a_newer_format_or_a_damaged_one_is_refused(
    in_memory: str, change: dict[str, object], words: str
) -> None:
    made = Manifest(
        model="m",
        model_sha256="0" * 64,
        engine="numpy",
        energies=False,
        views=[asdict(Config())],
        state="done",
        failed={"b": "why"},
    )
    facts = to_plain(made)
    place = Directory.at(in_memory)
    for told, expected in ((facts, made), (facts | change, None)):
        with place.replacing(MANIFEST_NAME) as temporary:
            temporary.write_text(json.dumps(told), encoding="utf-8")
        if expected is not None:
            assert read_manifest(place) == expected
    with pytest.raises(DataError, match="expected a manifest of archive score") as refused:
        read_manifest(place)
    assert words in refused.value.problem
