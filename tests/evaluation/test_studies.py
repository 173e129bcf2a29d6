"""Studies list the right experiments and measure what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad.config import Config
from stepvad.errors import ConfigError
from stepvad.evaluation import baselines, studies
from stepvad.evaluation.datasets import open_dataset
from stepvad.evaluation.intervals import difference
from stepvad.evaluation.protocol import FrameView, frame_scores, score_clips
from stepvad.evaluation.studies import STUDIES, Scope, Study, StudyCase

BASE = Config(K=12, width=16, max_steps=4, ema_warmup=True)


def scope(*data: Path, T: tuple[int, ...] = (12,), K: tuple[int, ...] = (12,)) -> Scope:
    return Scope(base=BASE, seeds=(0, 1), T=T, K=K, data=data or (Path("here"),))


def cases(study: str, given: Scope) -> dict[str, StudyCase]:
    (chosen,) = [one for one in STUDIES if one.name == study]
    listed = [*chosen.cases(given, given.data[0])]
    assert len({case.label for case in listed}) == len(listed)
    return {case.label: case for case in listed}


@pytest.mark.parametrize("study", [study.name for study in STUDIES])
def test_every_case_stands_beside_one_that_came_before(study: str) -> None:
    seen: list[str] = []
    for label, case in cases(
        study, scope(Path("here"), Path("there"), T=(4, 12), K=(8, 12))
    ).items():
        assert not case.beside or case.beside in seen
        assert case.experiments
        seen.append(label)


def test_the_grid_stops_at_the_rank_and_raw_coordinates_have_no_components() -> None:
    listed = cases("grid", scope(T=(1, 12), K=(16, 48)))
    assert [label for label in listed if "T = 1," in label or label.endswith("T = 1")] == [
        "STEP, T = 1, K = 16",
        "PCA/kNN times confidence, T = 1, K = 16",
        "STEP without PCA, T = 1",
        "raw coordinates (MULDE) times confidence, T = 1",
    ]
    both = [listed[f"STEP, T = 12, K = {K}"].experiments[0].config for K in (16, 48)]
    assert [(one.T, one.K) for one in both] == [(12, 16), (12, 48)]
    alone = cases("grid", scope(T=(1,), K=(48,)))
    assert "STEP, T = 1, K = 32" in alone


def test_a_study_of_several_methods_may_leave_some_out() -> None:
    some = replace(scope(T=(4,)), methods=("knn", "raw"))
    assert [case.method for case in cases("grid", some).values()] == ["knn", "raw"]
    assert {case.method for case in cases("jitter", some).values()} == {"knn", "raw"}
    with pytest.raises(ConfigError, match="some of step, raw-modulated, raw, knn, got magic"):
        replace(some, methods=("magic",))


def test_raw_coordinates_are_studied_with_the_network_of_step_and_with_that_of_mulde() -> None:
    given = scope(T=(12,))
    for study in ("grid", "training", "confidence", "jitter"):
        networks = {
            case.method: baselines.variant(one.method, one.config).network
            for case in cases(study, given).values()
            for one in case.experiments[:1]
        }
        assert (networks["raw-modulated"], networks["raw"]) == ("modulated", "vanilla")


def test_components_change_one_thing_each() -> None:
    listed = cases("components", scope())
    plain = listed["STEP"].experiments[0]
    assert listed["without training poses under 0.4"].experiments[0] == replace(
        plain, drop_below=0.4
    )
    assert listed["σ_low = 0.5"].experiments[0].config == replace(plain.config, sigma_low=0.5)
    jittered = listed["block jitter 0.1 in training"].experiments[0]
    assert jittered.config == replace(plain.config, block_jitter=0.1)
    assert listed["STEP without whitening"].experiments[0].config.whiten is False


def test_trainings_are_shorter_and_longer_and_knn_is_fitted_once() -> None:
    listed = cases("training", scope())
    steps = [one.experiments[0].config.max_steps for one in listed.values() if one.line == "STEP"]
    assert steps == [1, 2, 4, 8, 16]
    wide = listed["STEP, twice as wide, 8 steps"].experiments[0].config
    assert (wide.width, wide.max_steps) == (32, 8)
    nearest = [one for one in listed.values() if one.method == "knn"]
    assert [one.x for one in nearest] == steps
    assert len({one.experiments for one in nearest}) == 1


def test_aggregations_and_noise_share_the_fits_of_one_method() -> None:
    listed = cases("aggregations", scope())
    assert len({one.fitting for case in listed.values() for one in case.experiments}) == 2
    assert listed["sum: backtrack, smoothed"].placement == "backtrack"
    noisy = cases("jitter", scope())
    fits = {one.fitting for case in noisy.values() for one in case.experiments}
    assert len(fits) == 2 + 2 + 2 + 1  # two seeds of STEP and of both on raw coordinates


def test_transfer_fits_elsewhere_and_on_all() -> None:
    listed = cases("transfer", scope(Path("a"), Path("b.npz")))
    assert {label: case.experiments[0].fit_on for label, case in listed.items()} == {
        "fitted on a": (),
        "fitted on b": ("b.npz",),
        "fitted on all": ("a", "b.npz"),
    }


@pytest.mark.slow
def test_a_study_measures_each_case_and_pairs_the_difference(
    walker_dataset: Path, tmp_path: Path
) -> None:
    listed = ("step", "mahalanobis")

    def two(given: Scope, _: Path) -> list[StudyCase]:
        first, second = (
            StudyCase(label=name, method=name, experiments=given.of(name)) for name in listed
        )
        return [first, replace(second, beside="step")]

    study = Study("two", "two methods", lambda given, own: iter(two(given, own)))
    given = scope(walker_dataset)
    lines = studies.run(study, given, studies.Fits(results=tmp_path))
    dataset = open_dataset(walker_dataset)
    by_hand = []
    for case in two(given, walker_dataset):
        sets = [
            frame_scores(score_clips(one.fit(dataset), dataset), dataset, FrameView(smoothed=False))
            for one in case.experiments
        ]
        by_hand.append(type(sets[0]).of_seeds(sets))
    assert [line.case.label for line in lines] == [*listed]
    for line, scores in zip(lines, by_hand, strict=True):
        assert line.auroc.mean == pytest.approx(scores.measure("auroc"))
        np.testing.assert_allclose(line.each, scores.measure_each())
    assert lines[0].difference is None
    expected = difference(by_hand[1], by_hand[0])
    assert lines[1].difference is not None
    assert lines[1].difference.value == pytest.approx(expected.value)
    assert lines[1].difference.low == pytest.approx(expected.low)
