"""Training: it learns, stops, goes on where it was, and uses the device it is asked to."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stepvad import Detector
from stepvad.config import Checkpoint, Compute, Config, Method, Precision, Reference
from stepvad.errors import ConfigError, ModelFileError, Progress, Report, StepvadError, silent
from stepvad.evaluation.baselines import variant
from stepvad.model import dsm, modelfile, training
from stepvad.model.energy import Energy
from stepvad.model.engines import Weights
from stepvad.model.training import (
    TrainingBatch,
    TrainingSet,
    TrainingState,
    ema_decay,
    flushed,
    learning_rate,
    run_epoch,
    torch_device,
    train,
    update_ema,
)
from stepvad.poses import Clip

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
    jittered = replace(CONFIG, reference=Reference(block_jitter=0.1))
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


class StoppedError(Exception):
    pass


def fit(
    config: Config = CONFIG,
    *,
    digest: str = "gaussian",
    checkpoint: Path | None = None,
    resume: bool = False,
    report: Report = silent,
    validate: Callable[[Weights, int], float] | None = None,
) -> tuple[Weights, int]:
    """Train on the same points."""
    kept = Checkpoint(checkpoint, resume=resume) if checkpoint else None
    return train(gaussian(digest=digest), config, report=report, validate=validate, checkpoint=kept)


@pytest.mark.parametrize("stop_at", [5, 8, 9])  # in the middle, at the end and at the start
def test_a_resumed_training_ends_at_the_same_bytes(tmp_path: Path, stop_at: int) -> None:
    checkpoint = tmp_path / "c"
    config = replace(CONFIG, reference=Reference(block_jitter=0.05), patience=3)

    def validate(weights: object, epoch: int) -> float:
        return {1: 0.5, 2: 0.4, 3: 0.3, 4: 0.2}[epoch]

    def stop(progress: Progress) -> None:
        if progress.done == stop_at:
            raise StoppedError

    whole = fit(config, validate=validate)
    with pytest.raises(StoppedError):
        fit(config, report=stop, validate=validate, checkpoint=checkpoint)
    resumed = fit(config, validate=validate, checkpoint=checkpoint, resume=True)
    assert same(whole[0], resumed[0])
    assert whole[1] == resumed[1]


def test_a_checkpoint_of_other_settings_or_poses_is_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "c"
    fit(checkpoint=checkpoint)
    with pytest.raises(ModelFileError, match="the same settings"):
        fit(replace(CONFIG, K=3, seed=1), checkpoint=checkpoint, resume=True)
    with pytest.raises(ModelFileError, match="the same use of validation"):
        fit(validate=lambda weights, epoch: 0.0, checkpoint=checkpoint, resume=True)
    with pytest.raises(ModelFileError, match="the same poses"):
        fit(digest="x", checkpoint=checkpoint, resume=True)
    with pytest.raises(ModelFileError, match="cannot be read"):
        fit(checkpoint=tmp_path / "none", resume=True)


@pytest.mark.parametrize("kept", [0, 4, -100])
def test_a_damaged_checkpoint_is_refused_with_the_way_to_start_over(
    tmp_path: Path, kept: int
) -> None:
    checkpoint = tmp_path / "c"
    fit(checkpoint=checkpoint)
    checkpoint.write_bytes(checkpoint.read_bytes()[:kept])
    with pytest.raises(ModelFileError, match="expected the checkpoint of a training") as error:
        fit(checkpoint=checkpoint, resume=True)
    assert (
        error.value.hint == "delete this file to start over if it is damaged, or name another one"
    )


def test_a_model_is_not_a_checkpoint(tmp_path: Path) -> None:
    modelfile.write_tensors({"a": np.zeros(1, np.float32)}, {"kind": "model"}, tmp_path / "c")
    with pytest.raises(ModelFileError, match="expected the checkpoint of a training") as error:
        fit(checkpoint=tmp_path / "c", resume=True)
    assert error.value.hint == "name another file as the checkpoint"


def rated_by(digest: str, checkpoint: Checkpoint, precision: Precision = "auto") -> None:
    """A training that is rated by the clips of this digest."""
    train(
        gaussian(),
        CONFIG,
        report=silent,
        validate=lambda weights, epoch: float(epoch),
        rated_by=digest,
        checkpoint=checkpoint,
        compute=Compute(precision=precision),
    )


def test_a_checkpoint_of_other_validation_clips_or_of_another_precision_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c"
    rated_by("these", Checkpoint(path))
    again = Checkpoint(path, resume=True)
    rated_by("these", again)
    rated_by("these", again, "float32")  # what auto is at this width
    with pytest.raises(ModelFileError, match="the same validation clips, got another"):
        rated_by("others", again)
    with pytest.raises(ModelFileError, match="precision bfloat16, got float32") as error:
        rated_by("these", again, "bfloat16")
    assert (
        error.value.hint
        == "resume with Compute(precision='float32'), or delete this file to start over"
    )


@pytest.mark.parametrize("max_steps", [None, 14])  # whole epochs, and a part of the last
@pytest.mark.parametrize("stop_at", [1, 2, 3, 4])
def test_a_training_stopped_while_it_is_validated_resumes_to_the_same_bytes(
    tmp_path: Path, stop_at: int, max_steps: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepvad.model.training.CHECKPOINT_S", -1.0)  # a checkpoint per step
    checkpoint, config = tmp_path / "c", replace(CONFIG, max_steps=max_steps)
    asked: list[int] = []
    steps: list[int] = []

    def validate(weights: object, epoch: int) -> float:
        asked.append(epoch)
        return float(epoch)

    def stop(weights: object, epoch: int) -> float:
        if epoch == stop_at:
            raise StoppedError
        return float(epoch)

    whole = fit(config, validate=validate)
    asked.clear()
    with pytest.raises(StoppedError):
        fit(config, validate=stop, checkpoint=checkpoint)

    def heard(progress: Progress) -> None:
        steps.append(progress.done)

    resumed = fit(config, report=heard, validate=validate, checkpoint=checkpoint, resume=True)
    assert asked == list(range(stop_at, 5))
    assert same(whole[0], resumed[0])
    assert whole[1] == resumed[1] == 4
    assert steps == list(range(4 * stop_at + 1, (max_steps or 16) + 1))


@pytest.mark.parametrize("seconds", [300.0, -1.0])  # a checkpoint per epoch, and per step
@pytest.mark.parametrize("stop_at", [5, 8, 9, 16])
def test_a_training_without_validation_resumes_to_the_same_bytes(
    tmp_path: Path, stop_at: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepvad.model.training.CHECKPOINT_S", seconds)
    checkpoint = tmp_path / "c"
    config = replace(CONFIG, reference=Reference(block_jitter=0.05))
    steps: list[int] = []

    def stop(progress: Progress) -> None:
        if progress.done == stop_at:
            raise StoppedError

    whole = fit(config)
    with pytest.raises(StoppedError):
        fit(config, report=stop, checkpoint=checkpoint)
    resumed = fit(
        config,
        report=lambda progress: steps.append(progress.done),
        checkpoint=checkpoint,
        resume=True,
    )
    assert same(whole[0], resumed[0])
    assert whole[1] == resumed[1]
    per_epoch = gaussian().steps_per_epoch(config)
    kept = stop_at - 1 if seconds < 0 else (stop_at - 1) // per_epoch * per_epoch
    assert steps == list(range(kept + 1, 17))


def test_a_finished_training_resumes_to_what_it_was(tmp_path: Path) -> None:
    checkpoint = tmp_path / "c"
    whole = fit(checkpoint=checkpoint)
    again = fit(checkpoint=checkpoint, resume=True)
    assert same(whole[0], again[0])
    assert whole[1] == again[1] == 4


def test_the_best_weights_survive_a_break(tmp_path: Path) -> None:
    checkpoint = tmp_path / "c"
    qualities = {1: 0.2, 2: 0.9, 3: 0.3, 4: 0.5}

    def validate(weights: object, epoch: int) -> float:
        return qualities[epoch]

    def stop(progress: Progress) -> None:
        if progress.done == 13:  # in the last epoch
            raise StoppedError

    whole, _ = fit(validate=validate)
    with pytest.raises(StoppedError):
        fit(report=stop, validate=validate, checkpoint=checkpoint)
    resumed, _ = fit(validate=validate, checkpoint=checkpoint, resume=True)
    assert same(whole, resumed)


SMALL = Config(T=6, K=12, width=32, sigma_width=8, L=4, epochs=2, batch_size=256, ema_warmup=True)
ELSEWHERE = "elsewhere"
THERE = torch.device("meta")
without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


class OneDevice(TorchDispatchMode):
    """Refuses every operation on tensors of two devices, but for a move from one to the other."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        leaves = tree_leaves((args, kwargs))
        devices = {leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim()}
        if func is not torch.ops.aten._to_copy.default:
            assert len(devices) <= 1, f"{func} on {devices}"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["cuda", "cuda:9", "tpu", "meta", ""])
@without_cuda
def test_a_device_that_is_not_there_is_one_sentence(name: str) -> None:
    with pytest.raises(ConfigError, match=r"device: expected one that torch can compute on here"):
        torch_device(name)
    assert torch_device("cpu") == torch.device("cpu")


@without_cuda
def test_every_part_that_takes_a_device_refuses_one_that_is_not_there(walkers: list[Clip]) -> None:
    missing = Compute(device="cuda")
    for take in (
        lambda: Detector.fit(iter(()), SMALL, compute=missing),  # before it reads a clip
        lambda: training.time_steps(8, SMALL, missing),
        lambda: training.training_precision(replace(SMALL, width=512), missing),
    ):
        with pytest.raises(ConfigError, match="device: expected"):
            cast("object", take())


@pytest.mark.parametrize("method", ["step", "vanilla"])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_a_training_step_keeps_to_its_device(
    method: Method, bfloat16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(variant(method, SMALL), reference=Reference(block_jitter=0.1))
    precision: str = "bfloat16" if bfloat16 else "float32"
    compute = Compute(device="meta", precision=precision, compiled=False)  # type: ignore[arg-type]  # no public device
    monkeypatch.setattr(training, "torch_device", torch.device)  # which refuses a device to try
    state = TrainingState.start(config, compute)
    with OneDevice():  # type: ignore[no-untyped-call]  # torch's
        pi_x, c = torch.ones(8, config.K, device=THERE), torch.ones(8, device=THERE)
        sigmas = torch.tensor(config.sigmas, dtype=torch.float32, device=THERE)
        loss = dsm.loss(
            state.f, pi_x, c, sigmas, generator=state.generator, gradient=state.gradient
        )
        loss.backward()
        update_ema(state.ema, state.f, 0.9)
        tensors = [loss, *state.f.parameters(), *state.ema.parameters()]
        tensors += [p.grad for p in state.f.parameters() if p.grad is not None]
    assert {tensor.device for tensor in tensors} == {THERE}


DENORMALS = torch.full((200_000,), 1e-40)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def share_kept() -> float:
    return float(((DENORMALS * 1) != 0).double().mean())


@pytest.mark.usefixtures("two_threads")
def test_helpers_that_torch_started_earlier_do_not_keep_denormals() -> None:
    assert share_kept() == 1
    assert flushed(lambda _: share_kept(), silent) == 0
    assert share_kept() == 1


def test_an_error_of_the_work_reaches_the_caller() -> None:
    def fail(_: Report) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        flushed(fail, silent)


def test_an_interrupted_caller_ends_the_work() -> None:
    main, steps = threading.get_ident(), 0

    def work(report: Report) -> None:
        nonlocal steps
        for steps in range(500):
            report(Progress("working", steps, 500))
            if steps == 3:
                signal.pthread_kill(main, signal.SIGINT)
            time.sleep(0.02)

    with pytest.raises(KeyboardInterrupt):
        flushed(work, silent)
    assert 3 <= steps < 100
    assert not any(thread.name.startswith("flushed") for thread in threading.enumerate())
