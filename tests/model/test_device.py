"""Training, statistics, validation and scoring compute on the device that was asked for.

No accelerator is needed: tensors without numbers, of torch's device meta, show that no operation
mixes two devices, and a stand-in name shows which parts ask for the device.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stepvad import Compute, Config, ConfigError, Detector
from stepvad.config import Method
from stepvad.evaluation.baselines import variant
from stepvad.model import device, dsm, gradient, training
from stepvad.model.device import torch_device
from stepvad.model.folded import fold
from stepvad.model.runtime import EngineNetwork, choose, is_cpu, torch_engine
from stepvad.model.runtime.torch_engine import tensor_energies, torch_energies
from stepvad.model.training import TrainingState, to_numpy, update_ema
from stepvad.poses import Clip

CONFIG = Config(T=6, K=12, width=32, sigma_width=8, L=4, epochs=2, batch_size=256, ema_warmup=True)
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
    weights = to_numpy(TrainingState.start(CONFIG).ema.state_dict())
    missing = Compute(device="cuda")
    for take in (
        lambda: Detector.fit(iter(()), CONFIG, compute=missing),  # before it reads a clip
        lambda: training.time_steps(8, CONFIG, missing),
        lambda: gradient.training_precision(replace(CONFIG, width=512), missing),
        lambda: EngineNetwork.of(fold(weights, CONFIG), device="cuda"),
        lambda: choose("fastest", width=512, device="cuda"),
    ):
        with pytest.raises(ConfigError, match="device: expected"):
            cast("object", take())


def test_engines_of_the_processor_are_refused_for_another_device() -> None:
    assert choose("auto", width=8, device="cuda") == "torch"
    assert choose("torch", width=8, device="cuda") == "torch"
    assert choose("auto", width=8, device="cpu:0") == choose("auto", width=8)
    with pytest.raises(ConfigError, match="expected torch for the device cuda, got 'openvino'"):
        choose("openvino", width=8, device="cuda")


@pytest.mark.parametrize("method", ["step", "vanilla"])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_a_training_step_keeps_to_its_device(
    method: Method, bfloat16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(variant(method, CONFIG), block_jitter=0.1)
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


@pytest.mark.parametrize("method", ["step", "vanilla", "raw-modulated"])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_scoring_keeps_to_its_device(method: Method, bfloat16: bool) -> None:
    config = variant(method, CONFIG)
    folded = fold(to_numpy(TrainingState.start(config).ema.state_dict()), config)
    with OneDevice():  # type: ignore[no-untyped-call]  # torch's
        run = tensor_energies(folded, THERE, bfloat16=bfloat16)
        energies = run(torch.ones(5, config.K))
    assert energies.device == THERE
    assert energies.shape == (5, config.L)


@pytest.mark.parametrize("method", ["step", "vanilla"])
def test_energies_of_a_device_are_those_of_the_processor(method: Method) -> None:
    config = variant(method, CONFIG)
    folded = fold(to_numpy(TrainingState.start(config).ema.state_dict()), config)
    pi_x = np.random.default_rng(0).standard_normal((9, config.K), dtype=np.float32)
    whole = torch_energies(folded, "cpu", bfloat16=False)
    np.testing.assert_allclose(whole(pi_x), folded.energies(pi_x), atol=1e-5)
    assert whole(pi_x[:0]).shape == (0, config.L)


def test_statistics_validation_and_scores_are_computed_where_the_training_is(
    walkers: list[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device called elsewhere, which is the processor: who computes there names it."""
    known = torch.device

    def stand_in(name: str) -> torch.device:
        return known("cpu" if name == ELSEWHERE else name)

    asked: list[str] = []
    scored: list[int] = []

    def noted(folded: object, name: str, *, bfloat16: bool) -> object:
        asked.append(name)
        run = torch_energies(folded, name, bfloat16=bfloat16)  # type: ignore[arg-type]  # passed on as it came

        def energies(pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
            scored.append(len(pi_x))
            return run(pi_x)

        return energies

    for module in (device, training, gradient, torch_engine):
        monkeypatch.setattr(module, "torch_device", stand_in)
    monkeypatch.setattr(torch_engine, "torch_energies", noted)
    rated: list[str] = []

    def rate(detector: Detector) -> float:
        rated.append(detector.device)
        return float(detector.score(walkers[1]).A.mean())

    there = Detector.fit(
        walkers[:1], CONFIG, keep_best=rate, compute=Compute(device=ELSEWHERE, compiled=False)
    )
    assert not is_cpu(ELSEWHERE)
    assert rated == [ELSEWHERE] * CONFIG.epochs
    # for each epoch its statistics, of all windows, and the detector to rate; both again at the end
    assert asked == [ELSEWHERE] * 2 * (CONFIG.epochs + 1)
    assert scored[0] == there.origin.windows
    before = len(scored)
    A = there.score(walkers[0]).A
    assert sum(scored[before:]) == len(A)
    here = Detector.fit(walkers[:1], CONFIG, keep_best=rate, compute=Compute(compiled=False))
    np.testing.assert_allclose(A, here.score(walkers[0]).A, atol=1e-3)
