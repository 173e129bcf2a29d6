"""Training computes on the device that was asked for.

No accelerator is needed: tensors without numbers, of torch's device meta, show that no operation
mixes two devices.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stepvad import Compute, Config, Detector
from stepvad.config import Method
from stepvad.errors import ConfigError
from stepvad.evaluation.baselines import variant
from stepvad.model import dsm, gradient, training
from stepvad.model.device import torch_device
from stepvad.model.training import TrainingState, update_ema
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
    missing = Compute(device="cuda")
    for take in (
        lambda: Detector.fit(iter(()), CONFIG, compute=missing),  # before it reads a clip
        lambda: training.time_steps(8, CONFIG, missing),
        lambda: gradient.training_precision(replace(CONFIG, width=512), missing),
    ):
        with pytest.raises(ConfigError, match="device: expected"):
            cast("object", take())


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
