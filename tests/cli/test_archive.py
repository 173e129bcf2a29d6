from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepvad import read_clips
from stepvad.archive import scoring
from stepvad.formats import write_clip
from tests.conftest import Command


@pytest.fixture
def memory() -> Iterator[str]:
    import fsspec

    name = f"/{uuid.uuid4().hex}"
    yield f"memory:/{name}"
    fsspec.filesystem("memory").rm(name, recursive=True)


@pytest.fixture(scope="module")
def poses(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("archive") / "poses"
    for number, clip in enumerate(read_clips(people / "pose" / "test", fps=24.0)):
        place = root / f"date=2026-05-0{number + 1}" / "camera=yard"
        place.mkdir(parents=True)
        write_clip(clip, place / f"{clip.name}.parquet")
    return root


def test_scores_of_an_archive_are_kept_by_the_next_run(
    stepvad: Command, poses: Path, model: Path, memory: str
) -> None:
    done = stepvad("archive", "score", poses, "-o", f"{memory}/a", "--model", model)
    assert done.code == 0, done.err
    assert "scored now" in done.out
    again = stepvad("archive", "score", poses, "-o", f"{memory}/a", "--model", model, "--json")
    facts = json.loads(again.out)
    assert (facts["shards"], facts["kept"], facts["scored"], facts["failed"]) == (4, 4, 0, {})


def test_a_bad_file_is_named_and_the_command_fails_after_the_rest(
    stepvad: Command, poses: Path, model: Path, memory: str, tmp_path: Path
) -> None:
    clip = next(iter(read_clips(next(poses.rglob("*.parquet")))))
    write_clip(clip, tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"no")
    done = stepvad("archive", "score", tmp_path, "-o", f"{memory}/a", "--model", model)
    assert done.code == 1
    assert "failed: b.parquet:" in done.err
    assert "files failed" in done.out


def test_who_interrupts_a_run_hears_that_it_can_go_on(
    stepvad: Command, poses: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(scoring, "score", interrupt)
    done = stepvad("archive", "score", poses, "-o", tmp_path / "scores", "--model", model)
    assert (done.code, "repeat the command to resume" in done.err) == (130, True)
