"""The comparison of runtimes measures what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from stepvad.detector import Detector
from stepvad.evaluation.agreement import agreement, top_overlap
from stepvad.evaluation.datasets import open_dataset
from stepvad.model.runtime import Runtime, available
from tests.cli.conftest import Command
from tests.cli.conftest import model as model
from tests.cli.conftest import people as people
from tests.cli.conftest import stepvad as stepvad

RUNTIMES: tuple[Runtime, ...] = ("onnxruntime-int8", "numpy")


def test_float32_agrees_and_int8_shows_what_it_costs(model: Path, people: Path) -> None:
    detector, dataset = Detector.load(model), open_dataset(people)
    numpy, ort, int8 = agreement(detector, dataset, ["onnxruntime", "onnxruntime-int8"])
    assert (numpy.moved, numpy.top) == (0, 1)
    assert numpy.rank_correlation == pytest.approx(1)
    assert abs(ort.moved) <= 0.02
    assert ort.rank_correlation > 0.9999
    assert ort.deviation < 1e-4
    ours, theirs = (
        np.concatenate(
            [replace(detector, runtime=name).score(clip).A for clip, _ in dataset.test_clips()]
        )
        for name in RUNTIMES
    )
    assert int8.rank_correlation == pytest.approx(spearmanr(ours, theirs).statistic)
    assert int8.deviation > 1e-4
    assert int8.moved == pytest.approx(100 * (int8.auroc - numpy.auroc))


def test_everything_that_is_here_is_compared_and_nothing_that_cannot_be(
    model: Path, people: Path
) -> None:
    detector = Detector.load(model)
    bare = replace(detector, model=replace(detector.model, ranges=None))
    names = [line.engine for line in agreement(bare, open_dataset(people))]
    assert names == available(ranges=False)
    assert not any("int8" in name for name in names)


def test_the_top_is_the_highest_hundredth() -> None:
    reference = np.arange(400, dtype=np.float32)
    assert top_overlap(reference * 2, reference) == 1
    assert top_overlap(-reference, reference) == 0
    swapped = reference.copy()
    swapped[[395, 396]] = swapped[[396, 395]]
    assert top_overlap(swapped, reference) == 0.75


def test_the_command_prints_a_line_for_each(stepvad: Command, model: Path, people: Path) -> None:
    words = ("benchmark", "runtimes", model, people, "--runtimes", "onnxruntime")
    run = stepvad(*words)
    assert run.code == 0, run.err
    assert "rank corr." in run.out
    assert [line.split()[0] for line in run.out.splitlines()[-2:]] == ["numpy", "onnxruntime"]
    assert '"engine": "onnxruntime"' in stepvad(*words, "--json").out
    wrong = stepvad(*words[:-1], "abacus")
    assert wrong.code == 1
    assert "runtime: expected 'auto' or" in wrong.err
