"""Settings: the paper's defaults, and every refusal."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from stepvad.config import Config, Reference
from stepvad.errors import ConfigError

INF, NAN = math.inf, math.nan


def test_the_defaults_are_the_papers() -> None:
    paper = Config()
    assert (paper.T, paper.K, paper.L) == (12, 48, 10)
    assert (paper.width, paper.blocks, paper.sigma_width) == (1024, 4, 256)
    assert (paper.epochs, paper.batch_size, paper.max_steps) == (400, 1024, None)
    assert (paper.learning_rate, paper.final_rate) == (2e-4, 0.5)
    assert (paper.beta_1, paper.beta_2, paper.weight_decay) == (0.5, 0.9, 1e-2)
    assert (paper.ema_decay, paper.ema_warmup) == (0.999, False)
    assert not paper.reference.drop_last_window
    assert (paper.reference.whitening, paper.confidence, paper.aggregation) == (1, True, "max")


def test_the_noise_scales_are_ten_geometric_steps_from_a_tenth_to_one() -> None:
    sigmas = Config().sigmas
    assert sigmas.shape == (10,)
    np.testing.assert_allclose(sigmas, [10 ** (i / 9 - 1) for i in range(10)], rtol=1e-12)
    np.testing.assert_allclose(sigmas[1:] / sigmas[:-1], 10 ** (1 / 9), rtol=1e-12)


def test_one_noise_scale_is_the_lowest() -> None:
    assert Config(L=1, sigma_low=0.3).sigmas.tolist() == [0.3]
    assert Config(L=1, sigma_low=0.3, sigma_high=0.3).sigmas.tolist() == [0.3]


def test_settings_are_frozen_and_have_names() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().T = 3  # type: ignore[misc]  # wrong on purpose
    with pytest.raises(TypeError):
        Config(12)  # type: ignore[call-arg]  # wrong on purpose
    with pytest.raises(TypeError, match="wings"):
        Config(wings=2)  # type: ignore[call-arg]  # wrong on purpose


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        *(
            ({name: 0}, f"{name}: expected at least 1, got 0")
            for name in ("T", "K", "width", "blocks", "sigma_width", "L", "epochs", "batch_size")
        ),
        *(
            ({name: bad}, f"{name}: expected a positive number, got {bad}")
            for name in ("learning_rate", "sigma_low")
            for bad in (0.0, -1.0, INF, NAN)
        ),
        *(
            ({name: bad}, f"{name}: expected at least 0 and below 1, got {bad}")
            for name in ("beta_1", "beta_2", "ema_decay")
            for bad in (-0.1, 1.0, NAN)
        ),
        *(
            ({name: bad}, f"{name}: expected zero or positive, got {bad}")
            for name in ("weight_decay",)
            for bad in (-0.1, INF, NAN)
        ),
        *(
            ({"final_rate": bad}, f"final_rate: expected above 0 and at most 1, got {bad}")
            for bad in (0.0, 1.5, NAN)
        ),
        *(
            ({name: 0}, f"{name}: expected at least 1, or None, got 0")
            for name in ("patience", "max_steps")
        ),
        ({"seed": -1}, "seed: expected from 0 to 2**63 - 1, got -1"),
        ({"seed": 2**63}, f"seed: expected from 0 to 2**63 - 1, got {2**63}"),
        ({"sigma_high": 0.1}, "sigma_high: expected above sigma_low = 0.1, got 0.1"),
        ({"sigma_high": 0.05}, "sigma_high: expected above sigma_low = 0.1, got 0.05"),
        ({"sigma_high": INF}, "sigma_high: expected above sigma_low = 0.1, got inf"),
        ({"sigma_high": NAN}, "sigma_high: expected above sigma_low = 0.1, got nan"),
        *(
            (
                {"aggregation": bad},
                f"aggregation: expected 'max', 'sum', 'top2', 'top3' or a scale from 0 to 9, "
                f"got {bad!r}",
            )
            for bad in ("mean", "top4", -1, 10)
        ),
        *(
            (
                {"aggregation": bad, "L": 1, "sigma_high": 0.1},
                f"aggregation: expected 'max', 'sum', 'top2', 'top3' or a scale from 0 to 0, "
                f"got {bad!r}",
            )
            for bad in ("top2", "top3", 1)
        ),
    ],
)
def test_settings_that_no_model_can_have_are_refused(
    settings: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError) as error:
        Config(**settings)
    assert str(error.value) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"spread_floor": -0.1}, "spread_floor: expected zero or positive, got -0.1"),
        ({"block_jitter": INF}, "block_jitter: expected zero or positive, got inf"),
        ({"smooth": 1.0}, "smooth: expected at least 0 and below 1, got 1.0"),
        ({"whitening": 1.5}, "whitening: expected at least 0 and at most 1, got 1.5"),
        ({"projection": "ica"}, "projection: expected 'pca' or 'raw', got 'ica'"),
        ({"drop_last_window": 1}, "drop_last_window: expected bool, got 1"),
    ],
)
def test_settings_that_no_study_can_have_are_refused(
    settings: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError) as error:
        Reference(**settings)
    assert str(error.value) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"T": 1, "K": 1, "L": 1, "blocks": 1, "width": 1},
        {"beta_1": 0.0, "ema_decay": 0.0, "weight_decay": 0.0},
        {"final_rate": 1.0, "patience": 1, "max_steps": 1},
        {"seed": 2**63 - 1},
        {"aggregation": 9},
        {"aggregation": "top2", "L": 2},
        {"aggregation": "top3", "L": 3},
    ],
)
def test_settings_at_the_edge_are_allowed(settings: dict[str, Any]) -> None:
    Config(**settings)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"T": 2.5}, "T: expected int, got 2.5"),
        ({"T": "12"}, "T: expected int, got '12'"),
        ({"K": True}, "K: expected int, got True"),
        ({"clock": 1}, "clock: expected bool, got 1"),
        ({"sigma_low": None}, "sigma_low: expected float or int, got None"),
        ({"patience": 0.5}, "patience: expected int or None, got 0.5"),
        ({"aggregation": True}, "aggregation: expected str or int, got True"),
        ({"learning_rate": 10**400}, "learning_rate: expected a number below 1e308, got a larger"),
    ],
)
def test_settings_of_another_type_are_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        Config(**settings)
    assert str(error.value).startswith(expected)


def test_whole_numbers_serve_as_real_ones() -> None:
    assert Config(sigma_high=2) == Config(sigma_high=2.0)
    assert isinstance(Config(sigma_high=2).sigma_high, float)


def test_settings_for_own_footage_train_for_minutes() -> None:
    footage = Config.footage()
    assert footage.max_steps is not None
    assert footage.max_steps <= 1000
    assert footage.ema_warmup
    assert (footage.T, footage.K, footage.L) == (Config().T, Config().K, Config().L)
