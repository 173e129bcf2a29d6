"""A model fitted on an archive: on some of its files, calibrated on others, whoever reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepvad import Config, Detector, executors
from stepvad.archive import fitting
from stepvad.archive.fitting import FitOptions, hold_out
from stepvad.archive.storage import Directory, StoredFile
from stepvad.errors import StepvadError
from stepvad.evaluation import walkers
from stepvad.events.calibration import read_calibration
from tests.archive.archives import write_archive
from tests.conftest import Command

TINY = Config(K=12, width=16, max_steps=20, ema_warmup=True, clock=True)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve clips of two cameras on six days."""
    clips = [clip for clip, _ in walkers.make_clips(12, seed=5, seconds=6.0)]
    return write_archive(tmp_path_factory.mktemp("recorded") / "poses", clips)


@pytest.fixture
def memory(recorded: Path, in_memory: str) -> Directory:
    """The same in the memory of this process."""
    place = Directory.at(in_memory)
    for stored in Directory.at(str(recorded)).files(".parquet"):
        with place.replacing(stored.name) as temporary:
            temporary.write_bytes((recorded / stored.name).read_bytes())
    return place


def test_a_model_is_fitted_on_some_files_and_calibrated_on_the_others(
    memory: Directory, tmp_path: Path
) -> None:
    model = tmp_path / "model.safetensors"
    made = fitting.fit(memory.url, model, TINY)
    assert made.failed == {}
    detector = Detector.load(model)
    assert (detector.origin.clips, detector.config.fps) == (8, 25.0)
    calibration = read_calibration(tmp_path / "model.calibration.json")
    assert calibration.model_sha256 == detector.sha256
    assert {*calibration.ledgers} == {*calibration.block_stats} == {"gate", "yard"}
    assert calibration.threshold.hours == pytest.approx(4 * 6 / 3600, rel=0.1)


def test_bad_files_are_left_out_and_named(memory: Directory, tmp_path: Path) -> None:
    files = memory.files(".parquet")
    learned, held = hold_out(files)
    bad = [learned[0].name, held[0].name]
    for name in bad:
        with memory.replacing(name) as temporary:
            temporary.write_bytes(b"PAR1")
    made = fitting.fit(memory.url, tmp_path / "model.safetensors", TINY)
    assert [*made.failed] == sorted(bad)
    assert all("expected a Parquet file of tracks" in why for why in made.failed.values())
    assert made.detector.origin.clips == 7


def test_no_more_is_read_than_asked_for(memory: Directory, tmp_path: Path) -> None:
    total = sum(file.size for file in memory.files(".parquet"))
    options = FitOptions(megabytes=total / 3 / 1e6)
    models = []
    for name in ("a", "b"):
        made = fitting.fit(memory.url, tmp_path / f"{name}.safetensors", TINY, options)
        assert 2 <= made.detector.origin.clips <= 5
        models.append((tmp_path / f"{name}.safetensors").read_bytes())
    assert models[0] == models[1]


def test_a_third_of_each_camera_is_held_out_in_blocks_of_time() -> None:
    files = [
        StoredFile(f"date=2026-05-{day:02}/camera={camera}/{hour:02}.parquet", 1)
        for day in (1, 2, 3)
        for camera, hours in (("gate", 20), ("yard", 1))
        for hour in range(hours)
    ]
    learned, held = hold_out(files)
    assert sorted([*learned, *held], key=lambda file: file.name) == files
    gate = [file for file in files if "gate" in file.name]
    blocks = [gate[at : at + 5] for at in range(0, 60, 5)]
    assert [file for file in held if "gate" in file.name] == [
        file for block in blocks[2::3] for file in block
    ]
    assert [file.name for file in held if "yard" in file.name] == [
        "date=2026-05-03/camera=yard/00.parquet"
    ]


def test_too_few_files_to_hold_some_out_are_refused(memory: Directory, tmp_path: Path) -> None:
    for file in memory.files(".parquet")[4:]:
        memory.delete(file.name)
    with pytest.raises(StepvadError, match="expected at least 3 pose files of one camera"):
        fitting.fit(memory.url, tmp_path / "model.safetensors", TINY)


def test_the_command_says_what_it_made_and_names_bad_files(
    stepvad: Command, memory: Directory, tmp_path: Path
) -> None:
    (tmp_path / "tiny.toml").write_text("K = 12\nwidth = 16\nmax_steps = 20\n")
    words = ("archive", "fit", memory.url, "--settings", tmp_path / "tiny.toml")
    done = stepvad(*words, "-o", tmp_path / "model.safetensors")
    assert done.code == 0, done.err
    assert "of 8 clips" in done.out
    assert "cameras: 2, with a threshold of their own: 2" in done.out
    with memory.replacing(hold_out(memory.files(".parquet"))[1][0].name) as temporary:
        temporary.write_bytes(b"PAR1")
    done = stepvad(*words, "-o", tmp_path / "model.safetensors", "--json")
    assert done.code == 1
    facts = json.loads(done.out)
    assert (facts["origin"]["clips"], len(facts["failed"])) == (8, 1)
    assert "failed: date=" in done.err


def test_files_are_learned_in_their_order_whichever_is_read_first(
    memory: Directory, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backwards: Any = lambda work, tasks, **_: map(work, reversed(tasks))  # noqa: E731
    monkeypatch.setattr(executors, "run", backwards)
    made = []
    for name, place in (("a", memory.url), ("b", str(recorded))):
        fitting.fit(place, tmp_path / f"{name}.safetensors", TINY)
        calibration = (tmp_path / f"{name}.calibration.json").read_text()
        made.append(((tmp_path / f"{name}.safetensors").read_bytes(), calibration))
    assert made[0] == made[1]


@pytest.mark.slow
def test_processes_read_the_same_model(recorded: Path, tmp_path: Path) -> None:
    made = []
    for jobs in (1, 2):
        model = tmp_path / f"{jobs}.safetensors"
        fitting.fit(str(recorded), model, TINY, FitOptions(jobs=jobs))
        made.append((model.read_bytes(), model.with_suffix(".calibration.json").read_bytes()))
    assert made[0] == made[1]
