"""Every method by its name: fitted, named, saved, loaded, scored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from stepvad.cli.files import METHODS as WORDS
from stepvad.config import Config, Network, Projection
from stepvad.detector import Detector
from stepvad.evaluation import baselines
from stepvad.evaluation.baselines import DistanceDetector, Fitted, Method
from stepvad.formats.labels import FrameLabels
from stepvad.poses import Clip
from stepvad.skeletons import STEP18
from stepvad.windows import cut

METHODS: tuple[Method, ...] = get_args(Method)
TINY = Config(T=3, K=5, width=8, sigma_width=4, blocks=2, L=3, max_steps=3)


@pytest.fixture(scope="module")
def fitted(walkers: list[Clip]) -> dict[Method, Fitted]:
    return {method: baselines.fit(method, walkers[:1], TINY, k=2) for method in METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_known_by_the_name_it_was_fitted_by(
    fitted: dict[Method, Fitted], method: Method
) -> None:
    assert baselines.method_of(fitted[method]) == method
    assert isinstance(fitted[method], DistanceDetector) == baselines.is_distance(method)


@pytest.mark.parametrize("network", get_args(Network))
@pytest.mark.parametrize("projection", get_args(Projection))
@pytest.mark.parametrize("method", [m for m in METHODS if not baselines.is_distance(m)])
def test_a_name_decides_projection_and_network_and_nothing_else(
    method: Method, projection: Projection, network: Network
) -> None:
    start = replace(TINY, projection=projection, network=network, seed=7, whiten=False)
    config = baselines.variant(method, start)
    wanted: dict[Method, tuple[Projection, Network]] = {
        "step": ("pca", "modulated"),
        "raw-modulated": ("raw", "modulated"),
        "raw": ("raw", "vanilla"),
        "vanilla": ("pca", "vanilla"),
    }
    assert (config.projection, config.network) == wanted[method]
    assert replace(config, projection=projection, network=network) == start


@pytest.mark.parametrize("method", METHODS)
def test_a_method_saved_and_loaded_scores_to_the_bit_the_same(
    fitted: dict[Method, Fitted], walkers: list[Clip], tmp_path: Path, method: Method
) -> None:
    detector = fitted[method]
    detector.save(tmp_path / "m")
    loaded = baselines.load(tmp_path / "m")
    assert baselines.method_of(loaded) == method
    assert loaded.config == detector.config
    now, then = loaded.score(walkers[1]), detector.score(walkers[1])
    assert now.A.tobytes() == then.A.tobytes()
    assert now.windows.E.tobytes() == then.windows.E.tobytes()
    assert np.isfinite(now.A).all()
    assert now.A.std() > 0


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_bytes(
    fitted: dict[Method, Fitted], walkers: list[Clip], tmp_path: Path, method: Method
) -> None:
    fitted[method].save(tmp_path / "a")
    baselines.fit(method, iter(walkers[:1]), TINY, k=2).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_score_matching_methods_have_the_network_of_their_name(
    fitted: dict[Method, Fitted],
) -> None:
    for method in METHODS:
        detector = fitted[method]
        if isinstance(detector, Detector):
            modulated = "blocks.0.alpha.weight" in detector.model.weights
            assert modulated == (method not in ("raw", "vanilla"))


def test_raw_keeps_all_coordinates_as_they_are(
    fitted: dict[Method, Fitted], walkers: list[Clip]
) -> None:
    raw = fitted["raw"]
    assert isinstance(raw, Detector)
    D = 2 * 18 * TINY.T
    assert raw.config.K == D
    windows = cut(walkers[0], TINY, STEP18)[0].windows(slice(0, 9))
    np.testing.assert_array_equal(raw.model.space.project(windows.x), windows.x.reshape(9, D))
    assert raw.model.weights["input.weight"].shape == (TINY.width, D + 1)


def test_neighbours_are_for_knn_alone(fitted: dict[Method, Fitted]) -> None:
    knn = fitted["knn"]
    assert isinstance(knn, DistanceDetector)
    assert knn.neighbours is not None
    assert knn.neighbours.k == 2


def test_the_commands_know_every_method() -> None:
    assert tuple(WORDS) == METHODS


@pytest.mark.parametrize("method", METHODS)
def test_people_who_run_or_fall_score_higher_by_every_method(
    walkers: list[Clip], walker_test: list[tuple[Clip, FrameLabels]], method: Method
) -> None:
    config = replace(TINY, T=12, K=16, width=48, batch_size=128, max_steps=150, ema_warmup=True)
    config = replace(config, learning_rate=2e-3)
    detector = baselines.fit(method, walkers, config)
    normal, abnormal = [], []
    for clip, labels in walker_test:
        frames = detector.score(clip).frames
        scored = ~np.isnan(frames)
        normal.append(frames[scored & ~labels.abnormal])
        abnormal.append(frames[scored & labels.abnormal])
    assert np.median(np.concatenate(abnormal)) > np.quantile(np.concatenate(normal), 0.75)
