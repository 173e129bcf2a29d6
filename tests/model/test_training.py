from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from stepvad import Config
from stepvad.errors import Progress, StepvadError, silent
from stepvad.model.energy import Energy
from stepvad.model.training import (
    TrainingBatch,
    TrainingSet,
    TrainingState,
    ema_decay,
    learning_rate,
    run_epoch,
    train,
    update_ema,
)

CONFIG = Config(K=3, width=12, sigma_width=5, blocks=2, L=4, epochs=4, batch_size=32, seed=7)


def gaussian(n: int = 100, *, digest: str = "gaussian") -> TrainingSet:
    """Standard normal points, all with confidence 1."""
    pi_x = np.random.default_rng(0).standard_normal((n, 3), dtype=np.float32)

    def batch(rows: NDArray[np.int64]) -> TrainingBatch:
        return pi_x[rows], np.ones(len(rows), np.float32)

    return TrainingSet(n, batch, digest)


def same(a: object, b: object) -> bool:
    assert isinstance(a, dict)
    assert isinstance(b, dict)
    return a.keys() == b.keys() and all(a[k].tobytes() == b[k].tobytes() for k in a)


def test_the_rate_rises_over_the_first_epoch_and_falls_to_half() -> None:
    config = Config(learning_rate=0.8)
    rates = [learning_rate(step, 4, 44, config) for step in range(44)]
    np.testing.assert_allclose(rates[:4], [0.2, 0.4, 0.6, 0.8])
    assert rates[4] == 0.8
    assert rates[-1] == pytest.approx(0.4)
    assert all(a >= b for a, b in pairwise(rates[4:]))
    # halfway down the cosine lies the mean of both ends
    assert learning_rate(4 + 20, 4, 45, config) == pytest.approx(0.6)


def test_a_training_of_one_epoch_warms_up_in_its_first_half() -> None:
    rates = [learning_rate(step, 10, 10, Config(learning_rate=1.0)) for step in range(10)]
    np.testing.assert_allclose(rates[:5], [0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[-1] == pytest.approx(0.5)
    assert learning_rate(0, 1, 1, Config(learning_rate=1.0)) == 1.0


def test_the_average_moves_by_one_minus_decay() -> None:
    torch.manual_seed(0)
    ema, f = Energy(CONFIG).requires_grad_(False), Energy(CONFIG)
    before, current = ema.head.weight.clone(), f.head.weight.clone()
    update_ema(ema, f, 0.9)
    np.testing.assert_allclose(
        ema.head.weight, (0.9 * before + 0.1 * current).detach(), rtol=1e-5, atol=1e-7
    )
    assert torch.equal(f.head.weight, current)


def test_the_decay_is_constant_or_warmed_up() -> None:
    assert ema_decay(1, Config()) == 0.999
    warmed = Config(ema_warmup=True)
    assert ema_decay(1, warmed) == 2 / 11
    assert ema_decay(100, warmed) == 101 / 110
    assert ema_decay(10**6, warmed) == 0.999


def test_training_starts_with_an_average_that_is_an_exact_copy() -> None:
    state = TrainingState.start(CONFIG)
    for name, value in state.f.state_dict().items():
        assert torch.equal(value, state.ema.state_dict()[name])


def test_the_optimiser_is_the_papers_adamw() -> None:
    (group,) = TrainingState.start(Config(K=3, width=8)).optimiser.param_groups
    assert (group["betas"], group["weight_decay"]) == ((0.5, 0.9), 1e-2)


def test_the_averaged_weights_are_returned_and_not_the_live_ones() -> None:
    data = gaussian()
    state = TrainingState.start(CONFIG)
    for _ in range(CONFIG.epochs):
        run_epoch(state, data, CONFIG, silent)
    weights, epochs = train(data, CONFIG, report=silent)
    assert epochs == 4
    averaged, live = state.ema.state_dict(), state.f.state_dict()
    for name, value in weights.items():
        np.testing.assert_array_equal(value, averaged[name])
    assert not np.allclose(weights["head.weight"], live["head.weight"])


def test_an_epoch_sees_every_window_once_and_the_last_batch_is_the_rest() -> None:
    seen: list[NDArray[np.int64]] = []
    inner = gaussian(70)

    def batch(rows: NDArray[np.int64]) -> TrainingBatch:
        seen.append(rows)
        return inner.batch(rows)

    state = TrainingState.start(CONFIG)
    run_epoch(state, TrainingSet(70, batch, ""), CONFIG, silent)
    assert [len(rows) for rows in seen] == [32, 32, 6]
    first_pass = np.concatenate(seen)
    np.testing.assert_array_equal(np.sort(first_pass), np.arange(70))
    run_epoch(state, TrainingSet(70, batch, ""), CONFIG, silent)
    assert not np.array_equal(first_pass, np.concatenate(seen[3:]))


def test_max_steps_end_training_in_the_middle_of_an_epoch() -> None:
    reports: list[Progress] = []
    _, epochs = train(gaussian(), replace(CONFIG, max_steps=6), report=reports.append)
    assert [report.done for report in reports] == [1, 2, 3, 4, 5, 6]
    assert {report.total for report in reports} == {6}
    assert epochs == 2


def test_the_loss_falls_on_easy_data() -> None:
    losses: list[float] = []
    config = replace(CONFIG, epochs=40, learning_rate=1e-2, width=32)
    train(gaussian(320), config, report=lambda p: losses.append(float(p.note.split()[-1])))
    # at first K = 3, the energy of the noise itself; at best K / (1 + σ²)
    assert np.mean(losses[:5]) == pytest.approx(3, abs=0.4)
    assert np.mean(losses[-100:]) < 2.75


def test_the_seed_decides_everything() -> None:
    a, _ = train(gaussian(), CONFIG, report=silent)
    torch.manual_seed(123)  # the global generator does not matter
    b, _ = train(gaussian(), CONFIG, report=silent)
    c, _ = train(gaussian(), replace(CONFIG, seed=8), report=silent)
    assert same(a, b)
    assert not same(a, c)


def test_block_jitter_changes_the_training_and_is_reproducible() -> None:
    jittered = replace(CONFIG, block_jitter=0.1)
    a, _ = train(gaussian(), jittered, report=silent)
    b, _ = train(gaussian(), jittered, report=silent)
    plain, _ = train(gaussian(), CONFIG, report=silent)
    assert same(a, b)
    assert not same(a, plain)


def test_the_best_validation_is_kept() -> None:
    after: dict[int, object] = {}
    qualities = {1: 0.2, 2: 0.9, 3: 0.9, 4: 0.5}

    def validate(weights: object, epoch: int) -> float:
        after[epoch] = weights
        return qualities[epoch]

    weights, epochs = train(gaussian(), CONFIG, report=silent, validate=validate)
    assert epochs == 4
    assert same(weights, after[2])
    assert not same(weights, after[4])


def test_patience_ends_training_early() -> None:
    asked: list[int] = []

    def validate(weights: object, epoch: int) -> float:
        asked.append(epoch)
        return -epoch

    patient = replace(CONFIG, epochs=10, patience=2)
    _, epochs = train(gaussian(), patient, report=silent, validate=validate)
    assert asked == [1, 2, 3]
    assert epochs == 3


def test_training_takes_denormals_for_zero_and_leaves_the_arithmetic_as_it_was() -> None:
    denormal = np.array([1e-40], dtype=np.float32)
    meanwhile: list[float] = []
    torch.set_flush_denormal(False)
    train(
        gaussian(),
        replace(CONFIG, max_steps=2),
        report=lambda _: meanwhile.append((denormal * np.float32(1)).item()),
    )
    assert meanwhile == [0, 0]
    assert (denormal * np.float32(1)).item() > 0


def test_every_step_has_the_rate_of_the_schedule() -> None:
    state = TrainingState.start(CONFIG)
    rates: list[float] = []
    for _ in range(CONFIG.epochs):
        run_epoch(
            state,
            gaussian(),
            CONFIG,
            lambda _: rates.append(state.optimiser.param_groups[0]["lr"]),
        )
    n_steps = gaussian().n_steps(CONFIG)
    assert rates == [learning_rate(step, 4, n_steps, CONFIG) for step in range(n_steps)]
    assert len(set(rates)) > n_steps / 2


def test_the_average_warms_up_in_training_as_well() -> None:
    warmed = replace(CONFIG, ema_warmup=True, max_steps=1)
    state = TrainingState.start(warmed)
    start = state.f.head.weight.detach().clone()
    run_epoch(state, gaussian(), warmed, silent)
    expected = start.lerp(state.f.head.weight.detach(), 1 - 2 / 11)
    torch.testing.assert_close(state.ema.head.weight, expected)


def test_the_seed_decides_the_first_weights_and_the_noise() -> None:
    a, b = TrainingState.start(CONFIG), TrainingState.start(replace(CONFIG, seed=8))
    assert not torch.equal(a.f.head.weight, b.f.head.weight)
    assert not torch.equal(a.generator.get_state(), b.generator.get_state())


def test_a_loss_that_is_no_number_ends_training_with_a_remedy() -> None:
    inf = np.full(32, np.inf, dtype=np.float32)
    broken = TrainingSet(32, lambda rows: (np.zeros((32, 3), np.float32), inf), "")
    with pytest.raises(StepvadError, match="expected a finite loss at step 1, got") as error:
        train(broken, CONFIG, report=silent)
    assert error.value.hint == "lower the learning rate"


def test_a_validation_that_is_no_number_is_refused() -> None:
    with pytest.raises(StepvadError, match="expected a number after epoch 1, got nan") as error:
        train(gaussian(), CONFIG, report=silent, validate=lambda weights, epoch: float("nan"))
    assert error.value.hint


def test_a_diverged_training_and_a_validation_without_a_number_are_errors() -> None:
    with pytest.raises(StepvadError, match="training diverged: expected a finite loss at step"):
        train(gaussian(), replace(CONFIG, learning_rate=1e30), report=silent)
    with pytest.raises(StepvadError, match="validation: expected a number after epoch 1, got nan"):
        train(gaussian(), CONFIG, report=silent, validate=lambda weights, epoch: float("nan"))
