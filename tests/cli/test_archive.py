from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepvad import Detector, read_clips
from stepvad.archive import scoring
from stepvad.calibration import NormalClip, calibrate_cameras
from stepvad.calibration import file as calibration_file
from stepvad.formats import write_clip
from stepvad.model.modelfile import sha256
from tests.archive.archives import write_model
from tests.cli.conftest import Command


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


def test_score_compare_and_count_an_archive(
    stepvad: Command, poses: Path, model: Path, memory: str, tmp_path: Path
) -> None:
    other = write_model(tmp_path / "other.safetensors", seed=2)
    for name, used in (("a", model), ("b", other)):
        done = stepvad("archive", "score", poses, "-o", f"{memory}/{name}", "--model", used)
        assert done.code == 0, done.err
        assert "scored now" in done.out
    again = stepvad(
        *("archive", "score", poses, "-o", f"{memory}/a", "--model", model, "--json"),
    )
    facts = json.loads(again.out)
    assert (facts["shards"], facts["kept"], facts["scored"], facts["failed"]) == (4, 4, 0, {})

    told = stepvad("archive", "info", poses, f"{memory}/a", f"{memory}/b")
    assert told.code == 0, told.err
    assert "yard" in told.out
    assert told.out.count("4 of 4") == 2
    assert sha256(other)[:12] in told.out
    facts = json.loads(stepvad("archive", "info", poses, f"{memory}/a", "--json").out)
    assert facts["poses"][0]["first_date"] == "2026-05-01"
    assert facts["poses"][0]["last_date"] == "2026-05-04"
    assert facts["scores"][0]["of"] == 4

    compared = stepvad(
        *("archive", "diff", f"{memory}/a", f"{memory}/b"),
        *("--old-threshold", "0.5", "--new-threshold", "0.5", "--json"),
    )
    assert compared.code == 0, compared.err
    found = json.loads(compared.out)
    (line,) = found["lines"]
    assert (line["camera"], line["clips"]) == ("yard", 4)
    kinds = [change["kind"] for change in found["changed"]]
    assert (kinds.count("gained"), kinds.count("lost")) == (line["gained"], line["lost"])
    same = stepvad(
        *("archive", "diff", f"{memory}/a", f"{memory}/a"),
        *("--old-threshold", "0.5", "--new-threshold", "1e9"),
    )
    assert "lost" in same.out
    assert "2026-05-0" in same.out


def test_a_calibration_gives_each_camera_its_threshold_and_must_be_of_the_model(
    stepvad: Command, poses: Path, people: Path, model: Path, memory: str, tmp_path: Path
) -> None:
    stepvad("archive", "score", poses, "-o", f"{memory}/a", "--model", model)
    made = tmp_path / "model.calibration.json"
    detector = Detector.load(model)
    clips = [
        NormalClip(detector.score(clip).windows, clip.n_frames, 24.0, clip.first_frame)
        for clip in read_clips(people / "pose" / "train")
    ]
    calibration = calibrate_cameras(
        {"yard": clips * 30}, model_sha256=sha256(model), alerts_per_hour=3000.0
    )
    calibration_file.write(calibration, made)
    diff = ("archive", "diff", f"{memory}/a", f"{memory}/a", "--new-threshold", "1")
    assert stepvad(*diff, "--old-calibration", made).code == 0
    foreign = json.loads(made.read_text())
    foreign["model_sha256"] = "0" * 64
    made.write_text(json.dumps(foreign))
    refused = stepvad(*diff, "--old-calibration", made)
    assert refused.code == 1
    assert "expected the calibration of model" in refused.err
    neither = stepvad(*diff)
    assert "expected either --old-threshold or --old-calibration, got neither" in neither.err
    both = stepvad(*diff, "--old-calibration", made, "--old-threshold", "2")
    assert "got both" in both.err


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
    told = stepvad("archive", "info", f"{memory}/a")
    assert told.code == 0
    two = stepvad("archive", "info", tmp_path, poses)
    assert "expected poses in one place, got 2" in two.err


def test_a_place_without_poses_or_scores_is_said_to_be_empty(
    stepvad: Command, tmp_path: Path
) -> None:
    told = stepvad("archive", "info", tmp_path)
    assert (told.code, told.out) == (1, "")
    assert "expected poses or scores, got neither" in told.err


def test_who_interrupts_a_run_hears_that_it_can_go_on(
    stepvad: Command, poses: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(scoring, "score", interrupt)
    done = stepvad("archive", "score", poses, "-o", tmp_path / "scores", "--model", model)
    assert (done.code, "repeat the command to resume" in done.err) == (130, True)
