"""Every method through the commands: fit, score, evaluate, inspect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from stepvad import read_clip
from stepvad.evaluation import baselines
from stepvad.evaluation.baselines import DistanceDetector, Method
from tests.cli.conftest import QUICK
from tests.conftest import Command

METHODS: tuple[Method, ...] = get_args(Method)
SCORE_MATCHING = [method for method in METHODS if not baselines.is_distance(method)]


LINES: dict[Method, tuple[str, ...]] = {
    "step": (
        "STEP: score matching in PC-space",
        "12 of 432 principal components, whitened",
        "4 σ-modulated blocks of width 16",
        "weighs loss and score",
    ),
    "raw-modulated": (
        "raw-modulated: score matching on raw coordinates, STEP's network",
        "none: all 432 coordinates",
        "4 σ-modulated blocks of width 16",
    ),
    "raw": (
        "raw: score matching on raw coordinates, plain network",
        "none: all 432 coordinates",
        "4 plain layers of width 16",
    ),
    "vanilla": (
        "vanilla: score matching in PC-space, plain network",
        "12 of 432 principal components, whitened",
        "4 plain layers of width 16",
    ),
    "knn": (
        "knn: distance to the nearest training windows",
        "12 of 432 principal components, whitened",
        "Neighbours    1 of ",
        "weighs the score",
    ),
    "mahalanobis": (
        "mahalanobis: distance to the mean of the training windows",
        "12 of 432 principal components, whitened",
        "weighs the score",
    ),
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_fitted_scored_and_described(
    stepvad: Command, people: Path, tmp_path: Path, method: Method
) -> None:
    path = tmp_path / f"{method}.safetensors"
    run = stepvad("fit", people / "pose" / "train", "-o", path, *QUICK, "--method", method)
    trained = method in SCORE_MATCHING
    assert (run.code, run.out.strip(), " epochs, " in run.err) == (0, str(path), trained)
    fitted = baselines.load(path)
    assert baselines.method_of(fitted) == method
    assert (432 if method.startswith("raw") else 12) == fitted.config.K
    poses = sorted((people / "pose" / "test").iterdir())[0]
    scores = json.loads(stepvad("score", path, poses, "--json").out)[0]["windows"]["score"]
    np.testing.assert_array_equal(scores, fitted.score(read_clip(poses)).A)
    told = stepvad("inspect", path).out
    for words in (*LINES[method], "of 4 clips, sha256 ", "format 1, sha256 "):
        assert words in told
    for words in ("Energy ", "Noise ", "Training "):
        assert (words in told) == trained
    facts = json.loads(stepvad("inspect", path, "--json").out)
    assert (facts["method"], facts.get("k")) == (method, 1 if method == "knn" else None)
    assert ("E_mean" in facts) == trained
    assert facts["sha256"] in told


def test_neighbours_whitening_and_confidence_can_be_chosen(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    output = tmp_path / "m.safetensors"
    (tmp_path / "knn.toml").write_text("whiten = false\nconfidence = false\nK = 12\n")
    words = ("--method", "knn", "--neighbours", "3", "--settings", tmp_path / "knn.toml")
    assert stepvad("fit", people / "pose" / "train", "-o", output, *words).code == 0
    detector = baselines.load(output)
    assert isinstance(detector, DistanceDetector)
    assert detector.neighbours is not None
    assert detector.neighbours.k == 3
    assert (detector.config.whiten, detector.config.confidence) == (False, False)
    told = stepvad("inspect", output).out
    for line in ("components, not whitened", "Confidence    is ignored", "3 of ", "mean distance"):
        assert line in told
    assert json.loads(stepvad("inspect", output, "--json").out)["k"] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "knn", "--neighbours", "1000000"), "k: expected a number from 1 to "),
        (("--method", "knn", "--K", "500"), "K: expected at most"),
        (("--method", "mahalanobis", "--validation", "x"), "--validation: expected a method"),
        (("--method", "knn", "--resume"), "--resume: expected a method"),
        (("--neighbours", "2"), "--neighbours: expected a method that uses it, got --method"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(
    stepvad: Command, people: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    run = stepvad("fit", people / "pose" / "train", "-o", tmp_path / "m.safetensors", *words)
    assert run.code == 1
    assert "error: " in run.err
    assert message in " ".join(run.err.split())
    assert "Traceback" not in run.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [("--method", "wings"), ("--method", "knn", "--neighbours", "0")])
def test_an_unknown_method_and_no_neighbour_are_usage_errors(
    stepvad: Command, people: Path, words: tuple[str, ...]
) -> None:
    run = stepvad("fit", people / "pose" / "train", *words)
    assert run.code == 2
    assert words[-2] in run.err
