from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from stepvad import Detector
from stepvad.evaluation.datasets import open_dataset
from stepvad.evaluation.protocol import evaluate
from stepvad.evaluation.trivial import TITLES
from tests.conftest import Command


def test_the_table_holds_what_the_library_measures(
    stepvad: Command, model: Path, people: Path
) -> None:
    run = stepvad("evaluate", model, people)
    assert run.code == 0
    result = evaluate(Detector.load(model), open_dataset(people))
    row = result.row(placement="latest", smoothed=True, frames="all")
    line = next(
        line for line in run.out.splitlines() if line.split()[:3] == ["online", "smoothed", "all"]
    )
    assert line.split()[3:8] == [
        f"{row.n_frames:,}",
        f"{row.n_abnormal:,}",
        *(f"{100 * value:.1f}" for value in (row.auroc, row.ap, row.eer)),
    ]
    assert len(run.out.splitlines()) == 2 + 12
    assert " online, " in run.err


THREE = ("--placements", "latest,center,backtrack_max")


def test_json_carries_every_row_and_the_trivial_scores(
    stepvad: Command, model: Path, people: Path
) -> None:
    rows = json.loads(stepvad("evaluate", model, people, "--json", *THREE).out)["global"]["rows"]
    assert len(rows) == 3 * 2 * 6 * 3
    assert {row["method"] for row in rows} == {"detector", *TITLES}


def test_a_trivial_score_can_stand_in_the_place_of_the_model(
    stepvad: Command, model: Path, people: Path
) -> None:
    result = evaluate(Detector.load(model), open_dataset(people))
    run = stepvad("evaluate", model, people, "--method", "confidence")
    assert run.out.startswith("confidence on people")
    row = result.row(method="confidence", placement="latest", smoothed=False, frames="covered")
    line = next(
        line for line in run.out.splitlines() if line.split()[:3] == ["online", "raw", "covered"]
    )
    assert line.split()[5] == f"{100 * row.auroc:.1f}" == line.split()[10]


def test_without_training_clips_there_is_no_score_by_place(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    shutil.copytree(people, tmp_path / "test-only")
    shutil.rmtree(tmp_path / "test-only" / "pose" / "train")
    run = stepvad("evaluate", model, tmp_path / "test-only")
    assert run.code == 0, run.err
    assert run.out.splitlines()[1].split()[-4:] == ["persons", "confidence", "random", "speed"]
    refused = stepvad("evaluate", model, tmp_path / "test-only", "--method", "place")
    assert refused.code == 1
    assert "place needs training clips" in refused.err


def test_intervals_hold_the_figure_and_classes_are_told_apart(
    stepvad: Command, model: Path, people: Path
) -> None:
    words = ("evaluate", model, people, "--intervals", "--placements", "latest")
    tables = json.loads(stepvad(*words, "--json").out)
    assert len(tables["intervals"]) == 6
    shown = {kind for truth in open_dataset(people).labels.values() for kind in truth.classes}
    for line, row in zip(tables["intervals"], tables["global"]["rows"][:2], strict=False):
        assert line["frames"] == row["frames"] != "one-person"  # nobody is alone here
        assert line["auroc"]["value"] == pytest.approx(row["auroc"])
        assert line["auroc"]["low"] < line["auroc"]["value"] < line["auroc"]["high"]
        assert line["by_class"].keys() == shown
    assert "95 % over clips" in stepvad(*words).out


def test_smoothing_and_aggregation_can_be_chosen(
    stepvad: Command, model: Path, people: Path
) -> None:
    def rows(*words: str) -> list[dict[str, object]]:
        tables = json.loads(stepvad("evaluate", model, people, "--json", *words).out)
        return next(iter(tables.values()))["rows"]

    default = rows()
    assert rows("--aggregation", "max") == default
    assert rows("--aggregation", "sum") != default
    assert rows("--frame-sigma", "40") != default


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--aggregation", "best"), 1, "aggregation: expected"),
        (("--aggregation", "10"), 1, "a scale from 0 to 9"),
        (("--split", "none"), 2, "--split"),
        (("--placements", "late"), 1, "--placements: expected some of latest, center"),
        (("--frame-sigma", "-1"), 2, "--frame-sigma"),
    ],
)
def test_a_wrong_choice_is_refused(
    stepvad: Command, model: Path, people: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    run = stepvad("evaluate", model, people, *words)
    assert run.code == code
    assert message in run.err
