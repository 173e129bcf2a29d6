"""∇_z f in closed form against automatic differentiation, and what the loss makes of both."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from stepvad.config import Compute, Config, Network, Reference
from stepvad.errors import ConfigError
from stepvad.model import dsm, training
from stepvad.model.energy import Energy

CONFIG = Config(K=5, width=24, blocks=3, sigma_width=8, batch_size=32)
SIGMAS = torch.tensor(CONFIG.sigmas, dtype=torch.float64)


def network(config: Config) -> Energy:
    torch.manual_seed(0)
    return Energy(config).double()


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("jitter", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["modulated", "vanilla"])
def test_the_closed_form_is_the_gradient_and_has_its_derivatives(
    kind: Network, jitter: float, blocks: int
) -> None:
    f = network(
        replace(CONFIG, network=kind, reference=Reference(block_jitter=jitter), blocks=blocks)
    )
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(40, 5, generator=generator, dtype=torch.float64)
    scale = torch.randint(10, (40,), generator=generator)
    noise = f.draw_jitter(40, generator)
    noise = None if noise is None else noise.double()
    exact = dsm.grad_f(f, z, SIGMAS, scale, noise)
    closed = dsm.closed_form(f, z, SIGMAS, scale, noise)
    torch.testing.assert_close(closed, exact, rtol=1e-10, atol=1e-12)
    assert (noise is None) == (jitter == 0)
    for a, b in zip(derivatives(f, closed), derivatives(f, exact), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def derivatives(f: Energy, grad: Tensor) -> list[Tensor]:
    loss = (grad - 0.3).square().sum()
    found = torch.autograd.grad(loss, [*f.parameters()], retain_graph=True, allow_unused=True)
    return [torch.zeros(()) if value is None else value for value in found]


def test_gelu_and_its_slope_are_those_of_torch() -> None:
    a = torch.linspace(-6, 6, 101, dtype=torch.float64, requires_grad=True)
    y, slope = dsm.gelu_and_slope(a)
    torch.testing.assert_close(y, torch.nn.functional.gelu(a))
    (expected,) = torch.autograd.grad(torch.nn.functional.gelu(a).sum(), a)
    torch.testing.assert_close(slope, expected)
    assert torch.autograd.gradcheck(dsm.gelu_and_slope, a)


def test_bfloat16_rounds_the_large_products_alone() -> None:
    f = network(CONFIG).float()
    z, scale = torch.randn(64, 5), torch.randint(10, (64,))
    sigmas = SIGMAS.float()
    exact = dsm.closed_form(f, z, sigmas, scale)
    rounded = dsm.closed_form(f, z, sigmas, scale, precision=torch.bfloat16)
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    assert (rounded - exact).abs().max() < 0.02 * exact.abs().max()


@pytest.mark.slow
def test_compiled_code_gives_the_same_gradients_and_leaves_small_batches_alone() -> None:
    f = network(CONFIG).float()
    sigmas = SIGMAS.float()
    fast = training.fastest_gradient(CONFIG, Compute(compiled=True, precision="float32"), n_steps=1)
    for N in (CONFIG.batch_size, 7):
        z, scale = torch.randn(N, 5), torch.randint(10, (N,))
        exact = dsm.grad_f(f, z, sigmas, scale)
        closed = fast(f, z, sigmas, scale, None)
        torch.testing.assert_close(closed, exact, rtol=1e-4, atol=1e-5)
        for a, b in zip(derivatives(f, closed), derivatives(f, exact), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_a_precision_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="precision: expected 'auto' or 'float32' or 'bfloat16'"):
        Compute(precision="float16")  # type: ignore[arg-type]  # wrong on purpose
