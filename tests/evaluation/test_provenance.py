"""A stored result is reused only for what it is a result of."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import stepvad
from stepvad.config import Compute, Config, Runtime
from stepvad.errors import DataError, StepvadError
from stepvad.evaluation import provenance
from stepvad.evaluation.datasets import Dataset, of_clips, open_dataset
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.sweep import SweepPlace, SweepTask, digest_of, run_fit, sweep
from stepvad.evaluation.walkers import write_dataset
from stepvad.formats.labels import FrameLabels
from stepvad.model import gradient
from stepvad.poses import Clip
from stepvad.progress import Progress

TINY = Config(K=12, width=16, max_steps=6, ema_warmup=True)
WIDE = replace(TINY, width=gradient.BFLOAT16_FROM)
Labelled = tuple[Clip, FrameLabels]
PACKAGE = Path(stepvad.__file__).parent


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("provenance") / "people"
    write_dataset(root, seed=1, train_clips=3, test_clips=2, seconds=4.0)
    return root


def test_results_of_another_engine_are_not_reused(people: Path, tmp_path: Path) -> None:
    place = SweepPlace(data=people, results=tmp_path)
    experiments = [Experiment(config=TINY), Experiment(method="knn", config=TINY)]
    engines: dict[Runtime, str] = {
        "numpy": "numpy", "openvino": "openvino", "auto": "onnxruntime"
    }  # fmt: skip
    for runtime, engine in engines.items():
        own = replace(place, compute=Compute(runtime=runtime))
        step, knn = sweep(experiments, own)
        assert (step.facts["runtime"], knn.facts["runtime"]) == (engine, "numpy")
    assert len([*tmp_path.glob("*.parquet")]) == 3 + 1  # kNN has no engine


def test_auto_is_named_by_what_it_means_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def name(compute: Compute) -> str:
        place = SweepPlace(data=tmp_path, results=tmp_path, compute=compute)
        return place.file(Experiment(config=WIDE), "data").name

    found = {}
    for quick in (False, True):
        monkeypatch.setattr(gradient, "has_bfloat16", lambda _, quick=quick: quick)
        found[quick] = name(Compute())
    assert found[False] == name(Compute(precision="float32", runtime="onnxruntime"))
    assert found[True] == name(Compute(precision="bfloat16"))
    assert found[False] != found[True] != name(Compute(precision="bfloat16", runtime="numpy"))


def test_a_device_of_other_machines_is_part_of_the_name(tmp_path: Path) -> None:
    place = SweepPlace(data=tmp_path, results=tmp_path, compute=Compute(device="cuda:1"))
    assert place.file(Experiment(config=WIDE), "data").stem.endswith("-cuda-onnxruntime-auto")


def test_changed_code_makes_other_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = shutil.copytree(PACKAGE, tmp_path / "stepvad")
    before = provenance.code_digest(copy)
    assert before == provenance.code_digest(PACKAGE)
    for part in provenance.DECIDING:
        assert (copy / part).exists(), part
    (copy / "cli" / "fit.py").write_text("# help", encoding="utf-8")
    assert provenance.code_digest(copy) == before
    with (copy / "windows" / "gaps.py").open("a", encoding="utf-8") as file:
        file.write("# gaps")
    assert provenance.code_digest(copy) != before

    key = Experiment().key("data")
    monkeypatch.setattr(provenance, "code", lambda: "of another day")
    assert Experiment().key("data") != key


def test_the_rate_of_clips_is_part_of_their_digest(people: Path) -> None:
    dataset = open_dataset(people)
    faster = [clip.with_rate(50.0) for clip in dataset.train_clips()]
    assert digest_of(replace(dataset, train=lambda: faster)) != digest_of(dataset)


def test_a_clip_for_tuning_is_not_one_of_the_test(people: Path) -> None:
    dataset = open_dataset(people)
    first, second = dataset.test_clips()

    def divided(*test: Labelled, tuning: list[Labelled]) -> Dataset:
        others = of_clips("tuning", train=dataset.train, test=tuning)
        return of_clips("people", train=dataset.train, test=[*test], validation=others)

    alike = divided(first, second, tuning=[]), divided(first, tuning=[second])
    assert digest_of(alike[0]) != digest_of(alike[1])


def test_data_that_change_during_a_run_leave_no_result(people: Path, tmp_path: Path) -> None:
    place = SweepPlace(data=people, results=tmp_path)
    task = SweepTask((Experiment(config=TINY),), place, "digest of the data at the start")
    with pytest.raises(DataError, match="expected the same poses and labels from start to end"):
        run_fit(task)
    assert [*tmp_path.iterdir()] == []


def test_a_directory_that_cannot_hold_results_is_found_before_the_first_fit(people: Path) -> None:
    reports: list[Progress] = []
    place = SweepPlace(data=people, results=Path("/proc/self"))
    with pytest.raises(StepvadError, match="expected a place that can be written"):
        sweep([Experiment(config=TINY)], place, report=reports.append)
    assert reports == []
