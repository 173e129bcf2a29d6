"""Fig. 3: the network's size, its block recomputed by hand, and the folded twin that scores."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import erf
from torch import Tensor, nn

from stepvad.config import Config, Network, Reference
from stepvad.errors import silent
from stepvad.model.energy import Block, Energy
from stepvad.model.engines import ROWS, fold, gelu, weight_shapes
from stepvad.model.training import TrainingSet, to_numpy, train

SMALL = Config(K=5, width=16, blocks=3, sigma_width=8)


def network(config: Config, *, seed: int = 0) -> Energy:
    torch.manual_seed(seed)
    return Energy(config)


def exact_gelu(a: NDArray[np.float64]) -> NDArray[np.float64]:
    return a * (1 + erf(a / np.sqrt(2))) / 2


def modulation_by_hand(block: Block, sigma: NDArray[np.float64]) -> NDArray[np.float64]:
    """LayerNorm(W₂ GELU(W₁ σ)) · α(σ), `(N, width)`, from a block in float64."""
    w = {name: value.numpy() for name, value in block.state_dict().items()}
    inner = exact_gelu(sigma * w["sigma_in.weight"][:, 0] + w["sigma_in.bias"])
    outer = inner @ w["sigma_out.weight"].T + w["sigma_out.bias"]
    variance = outer.var(axis=1, keepdims=True)
    normed = (outer - outer.mean(axis=1, keepdims=True)) / np.sqrt(variance + 1e-5)
    return (normed * w["norm.weight"] + w["norm.bias"]) * (sigma * w["alpha.weight"][:, 0])


def test_the_network_of_the_paper_has_5_317_633_parameters() -> None:
    first = (48 + 1) * 1024 + 1024
    linear = 1024 * 1024 + 1024
    sigma_branch = (1 * 256 + 256) + (256 * 1024 + 1024)
    layer_norm, alpha = 2 * 1024, 1 * 1024
    head = 1024 + 1
    by_hand = first + 4 * (linear + sigma_branch + layer_norm + alpha) + head
    assert by_hand == 5_317_633
    assert sum(weight.numel() for weight in Energy(Config()).parameters()) == by_hand


def test_a_block_adds_gelu_of_a_linear_map_and_the_modulation() -> None:
    torch.manual_seed(0)
    block = Block(16, 8).double()
    nn.init.normal_(block.norm.weight)
    nn.init.normal_(block.norm.bias)
    h = np.random.default_rng(0).normal(size=(6, 16))
    sigma = np.geomspace(0.1, 1, 6)[:, None]
    linear = h @ block.linear.weight.detach().numpy().T + block.linear.bias.detach().numpy()
    expected = h + exact_gelu(linear) + modulation_by_hand(block, sigma)
    got = block(torch.tensor(h), torch.tensor(sigma))
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-12, atol=1e-12)


def test_the_network_is_a_linear_map_the_blocks_and_a_linear_head() -> None:
    f = network(SMALL).double()
    z = torch.randn(6, 5, dtype=torch.float64)
    sigma = torch.linspace(0.1, 1, 6, dtype=torch.float64)[:, None]
    # no activation after the input layer: its output, negative entries too, is what block 1 gets
    h = torch.cat([z, sigma], dim=1) @ f.input.weight.T + f.input.bias
    assert (h < 0).any()
    for block in f.blocks:
        h = block(h, sigma)
    expected = h @ f.head.weight[0] + f.head.bias
    got = f(z, sigma)
    assert got.shape == (6,)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_every_block_sees_sigma() -> None:
    f = network(SMALL)
    for block in f.blocks:
        h = torch.zeros(2, 16)
        low, high = block(h, torch.tensor([[0.1], [1.0]]))
        assert not torch.equal(low, high)


def test_alpha_has_no_bias_and_starts_between_a_thousandth_and_one() -> None:
    for block in network(Config(K=5, width=512, sigma_width=8)).blocks:
        alpha = cast(Block, block).alpha
        assert alpha.bias is None
        assert alpha.weight.shape == (512, 1)
        assert 0.001 <= alpha.weight.min() < 0.05
        assert 0.95 < alpha.weight.max() <= 1


def test_jitter_needs_a_generator_and_a_positive_size() -> None:
    calm, shaken = network(SMALL), network(replace(SMALL, reference=Reference(block_jitter=0.1)))
    z, sigma = torch.randn(6, 5), torch.full((6, 1), 0.3)

    def jittered(f: Energy, seed: int) -> Tensor:
        return f(z, sigma, noise=f.draw_jitter(6, torch.Generator().manual_seed(seed)))

    assert torch.equal(jittered(calm, 1), calm(z, sigma))
    assert torch.equal(shaken(z, sigma), calm(z, sigma))
    assert not torch.equal(jittered(shaken, 1), calm(z, sigma))
    assert torch.equal(jittered(shaken, 1), jittered(shaken, 1))
    assert not torch.equal(jittered(shaken, 1), jittered(shaken, 2))


def test_jitter_is_gaussian_noise_of_its_size_before_every_block() -> None:
    f = network(
        Config(K=2, width=64, blocks=2, sigma_width=4, reference=Reference(block_jitter=0.1))
    ).double()
    seen: list[Tensor] = []
    for block in f.blocks:
        block.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    z = torch.zeros(500, 2, dtype=torch.float64)
    sigma = torch.full((500, 1), 0.5, dtype=torch.float64)
    f(z, sigma)
    f(z, sigma, noise=f.draw_jitter(500, torch.Generator().manual_seed(0)))
    calm_first, _, first, second = seen
    assert (first - calm_first).std().item() == pytest.approx(0.1, rel=0.02)
    assert (first - calm_first).mean().item() == pytest.approx(0, abs=0.002)
    again = second - f.blocks[0](first, sigma)
    assert again.std().item() == pytest.approx(0.1, rel=0.02)
    both = torch.stack([(first - calm_first).ravel(), again.ravel()])
    assert torch.corrcoef(both)[0, 1].item() == pytest.approx(0, abs=0.02)  # drawn for each block


def test_weight_shapes_are_those_of_the_network() -> None:
    for config in (Config(), SMALL, Config(K=1, width=3, blocks=1, sigma_width=2)):
        with torch.device("meta"):
            expected = {name: tuple(w.shape) for name, w in Energy(config).state_dict().items()}
        assert weight_shapes(config) == expected


def test_gelu_is_exact_and_keeps_the_precision_of_its_input() -> None:
    a = np.linspace(-6, 6, 101)
    np.testing.assert_allclose(gelu(a), nn.functional.gelu(torch.tensor(a)).numpy(), atol=1e-15)
    assert gelu(a).dtype == np.float64
    assert gelu(a.astype(np.float32)).dtype == np.float32


def assert_twins(f: Energy, config: Config, z: NDArray[np.float32]) -> None:
    """Numpy's energies are torch's in float64, to 1e-5 of their size."""
    f = f.double()
    sigmas = torch.tensor(config.sigmas)
    with torch.no_grad():
        columns = [f(torch.tensor(z).double(), s.expand(len(z), 1)) for s in sigmas]
    expected = torch.stack(columns, dim=1).numpy()
    got = fold(to_numpy(f.float().state_dict()), config).energies(z)
    assert got.shape == (len(z), config.L)
    assert got.dtype == np.float32
    scale = np.abs(expected).max()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        Config(K=1, width=16, blocks=1, sigma_width=8, L=1, sigma_high=0.1),
        Config(K=3, width=33, blocks=1, sigma_width=5, L=4),
        Config(K=48, width=64, blocks=4, sigma_width=16),
        Config(K=7, width=8, blocks=2, sigma_width=3, L=1, sigma_low=0.5, aggregation=0),
    ],
)
@pytest.mark.parametrize("n", [0, 1, ROWS + 3])
def test_the_folded_network_is_the_network_with_random_weights(config: Config, n: int) -> None:
    f = network(config)
    for weight in f.parameters():
        if weight.ndim == 1:  # biases and LayerNorm, which start at constants
            nn.init.normal_(weight, std=0.5)
    z = np.random.default_rng(0).normal(size=(n, config.K)).astype(np.float32)
    if n:
        assert_twins(f, config, z)
    else:
        assert fold(to_numpy(f.state_dict()), config).energies(z).shape == (0, config.L)


def test_the_folded_network_is_the_network_at_the_papers_size() -> None:
    z = np.random.default_rng(0).normal(size=(5, 48)).astype(np.float32)
    assert_twins(network(Config()), Config(), z)


def test_the_folded_network_is_the_network_with_trained_weights() -> None:
    config = Config(
        K=4, width=32, sigma_width=8, epochs=30, batch_size=128, learning_rate=5e-3, ema_warmup=True
    )
    z = np.random.default_rng(0).normal(size=(512, 4)).astype(np.float32)
    data = TrainingSet(512, lambda rows: (z[rows], np.ones(len(rows), np.float32)), digest="")
    weights, _ = train(data, config, report=silent)
    f = network(config)
    f.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    assert_twins(f, config, 3 * z)


def test_energies_do_not_change_their_input() -> None:
    z = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)
    before = z.copy()
    fold(to_numpy(network(SMALL).state_dict()), SMALL).energies(z)
    np.testing.assert_array_equal(z, before)


def test_a_plain_network_has_neither_skip_nor_modulation() -> None:
    f = network(replace(SMALL, network="vanilla"))
    z, sigma = torch.randn(6, 5), torch.full((6, 1), 0.3)
    h = f.input(torch.cat([z, sigma], dim=1))
    for i in range(SMALL.blocks):
        h = nn.functional.gelu(
            h @ f.state_dict()[f"blocks.{i}.linear.weight"].T
            + f.state_dict()[f"blocks.{i}.linear.bias"]
        )
    torch.testing.assert_close(f(z, sigma), f.head(h).squeeze(1))
    assert {name: tuple(w.shape) for name, w in f.state_dict().items()} == weight_shapes(
        replace(SMALL, network="vanilla")
    )


@pytest.mark.parametrize("kind", ["modulated", "vanilla"])
@pytest.mark.parametrize("blocks", [1, 3])
def test_the_folded_gradient_is_that_of_automatic_differentiation(
    kind: Network, blocks: int
) -> None:
    config = replace(SMALL, network=kind, blocks=blocks)
    f = network(config)
    rng = np.random.default_rng(1)
    z = rng.normal(size=(ROWS + 7, 5)).astype(np.float32)
    scale = rng.integers(config.L, size=len(z))
    inputs = torch.tensor(z, requires_grad=True)
    sigma = torch.tensor(config.sigmas[scale][:, None], dtype=torch.float32)
    energy = f(inputs, sigma)
    (expected,) = torch.autograd.grad(energy.sum(), inputs)
    got, slopes = fold(to_numpy(f.state_dict()), config).slopes(z, scale)
    np.testing.assert_allclose(got, energy.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(slopes, expected.numpy(), rtol=1e-3, atol=1e-5)
    assert got.dtype == slopes.dtype == np.float32
