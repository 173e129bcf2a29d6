"""Eq. 7 in closed form: its value, its minimum, and what a network trained by it recovers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from torch import Tensor, nn

from stepvad.config import Config, Reference
from stepvad.errors import silent
from stepvad.model import dsm
from stepvad.model.energy import Energy
from stepvad.model.engines import fold
from stepvad.model.training import TrainingSet, train

logger = logging.getLogger(__name__)

SIGMAS = torch.tensor(Config().sigmas, dtype=torch.float32)


class Bowl(nn.Module):
    """f(z, σ) = scale · |z|² / 2(1 + σ²), the noisy energy of N(0, I) at scale 1."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def draw_jitter(self, N: int, generator: torch.Generator) -> None:
        return None

    def forward(self, z: Tensor, sigma: Tensor, *, noise: Tensor | None = None) -> Tensor:
        return self.scale * z.square().sum(dim=1) / 2 / (1 + sigma.squeeze(1) ** 2)


def bowl(scale: float) -> Energy:
    return cast(Energy, Bowl(scale))


def draws(seed: int, N: int, K: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The scales `(N, 1)` and the noise `(N, K)` that the loss draws from this seed."""
    generator = torch.Generator().manual_seed(seed)
    sigma = SIGMAS[torch.randint(len(SIGMAS), (N, 1), generator=generator)]
    noise = torch.randn((N, K), generator=generator)
    return sigma.double().numpy(), noise.double().numpy()


def loss_of(f: Energy, pi_x: Tensor, c: Tensor, *, sigmas: Tensor = SIGMAS, seed: int = 0) -> float:
    generator = torch.Generator().manual_seed(seed)
    return dsm.loss(f, pi_x, c, sigmas, generator=generator).item()


def test_the_loss_is_the_mean_of_c_sigma_squared_times_the_squared_mismatch() -> None:
    rng = np.random.default_rng(0)
    pi_x, c = rng.normal(size=(64, 5)), rng.uniform(size=64)
    sigma, noise = draws(3, 64, 5)
    z = pi_x + sigma * noise
    grad = 0.7 * z / (1 + sigma**2)
    mismatch = np.square(grad - (z - pi_x) / sigma**2).sum(axis=1)
    expected = np.mean(c * sigma[:, 0] ** 2 * mismatch)
    got = loss_of(bowl(0.7), torch.tensor(pi_x).float(), torch.tensor(c).float(), seed=3)
    assert got == pytest.approx(expected, rel=1e-5)


def test_a_flat_energy_pays_the_number_of_components_at_every_scale() -> None:
    # ∇f = 0 leaves σ² |σ ε / σ²|² = |ε|², of mean K whatever σ is: λ(σ) = σ² weighs scales alike
    pi_x, c = torch.zeros(20_000, 3), torch.ones(20_000)
    for sigma in SIGMAS:
        assert loss_of(bowl(0), pi_x, c, sigmas=sigma[None]) == pytest.approx(3, rel=0.03)


def test_every_scale_is_drawn_equally_often() -> None:
    sigma, _ = draws(0, 50_000, 1)
    values, counts = np.unique(sigma, return_counts=True)
    np.testing.assert_allclose(values, np.geomspace(0.1, 1, 10), rtol=1e-6)
    np.testing.assert_allclose(counts / 50_000, 0.1, atol=0.01)


def test_confidence_multiplies_the_loss_of_its_window() -> None:
    pi_x = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    alone = [loss_of(bowl(0.5), pi_x, torch.eye(6)[i]) for i in range(6)]
    c = torch.tensor([0.0, 0.1, 0.25, 0.5, 0.9, 1.0])
    expected = float(np.dot(c.numpy(), alone))
    assert loss_of(bowl(0.5), pi_x, c) == pytest.approx(expected, rel=1e-5)
    assert loss_of(bowl(0.5), pi_x, torch.zeros(6)) == 0


@pytest.mark.parametrize("i", [0, 5, 9])
def test_for_gaussian_data_the_loss_is_least_at_the_true_noisy_energy(i: int) -> None:
    pi_x = torch.randn(50_000, 3, generator=torch.Generator().manual_seed(1))
    low, true, high = (
        loss_of(bowl(scale), pi_x, torch.ones(50_000), sigmas=SIGMAS[i : i + 1])
        for scale in (0.5, 1.0, 1.5)
    )
    assert true < low
    assert true < high
    # the loss is a parabola in the scale: its lowest point from three of its values
    lowest = 1 + 0.25 * (low - high) / (low - 2 * true + high)
    assert lowest == pytest.approx(1, abs=0.05)


def test_for_gaussian_data_the_least_loss_is_what_the_formula_says() -> None:
    # at the true energy ∇f - (z - π)/σ² has variance 1/σ² - 1/(1 + σ²) per component; times σ²
    sigmas = Config().sigmas
    expected = 3 * np.mean(1 / (1 + sigmas**2))
    pi_x = torch.randn(50_000, 3, generator=torch.Generator().manual_seed(1))
    assert loss_of(bowl(1), pi_x, torch.ones(50_000)) == pytest.approx(expected, rel=0.02)


def test_the_gradient_in_z_agrees_with_finite_differences() -> None:
    torch.manual_seed(0)
    f = Energy(Config(K=5, width=16, blocks=3, sigma_width=8)).double()
    z = torch.randn(7, 5, dtype=torch.float64)
    sigmas = torch.linspace(0.1, 1, 7, dtype=torch.float64)
    sigma, step = sigmas[:, None], 1e-6
    gradient = dsm.grad_f(f, z, sigmas, torch.arange(7))
    with torch.no_grad():
        for k in range(5):
            moved = step * torch.eye(5, dtype=torch.float64)[k]
            slope = (f(z + moved, sigma) - f(z - moved, sigma)) / (2 * step)
            torch.testing.assert_close(gradient[:, k], slope, rtol=1e-6, atol=1e-9)


def test_the_gradient_in_z_can_be_differentiated_in_the_weights() -> None:
    f = Energy(Config(K=3, width=8, blocks=2, sigma_width=4))
    z, sigmas = torch.randn(4, 3), torch.tensor([0.3])
    dsm.grad_f(f, z, sigmas, torch.zeros(4, dtype=torch.int64)).square().sum().backward()
    assert z.grad is None
    for weight in (f.input.weight, f.head.weight):
        assert weight.grad is not None
        assert weight.grad.abs().sum() > 0


def test_the_loss_draws_block_jitter_from_its_own_generator() -> None:
    torch.manual_seed(0)
    calm = Energy(Config(K=3, width=8, blocks=2, sigma_width=4))
    shaken = Energy(
        Config(K=3, width=8, blocks=2, sigma_width=4, reference=Reference(block_jitter=0.1))
    )
    shaken.load_state_dict(calm.state_dict())
    pi_x, c = torch.randn(32, 3), torch.ones(32)
    assert loss_of(shaken, pi_x, c, seed=1) == loss_of(shaken, pi_x, c, seed=1)
    assert loss_of(shaken, pi_x, c, seed=1) != loss_of(calm, pi_x, c, seed=1)


@dataclass(frozen=True)
class Mixture:
    """Axis-parallel Gaussians: weights `(M,)`, means and standard deviations `(M, K)`."""

    weights: NDArray[np.float64]
    means: NDArray[np.float64]
    stds: NDArray[np.float64]

    def sample(self, n: int, sigma: float, rng: np.random.Generator) -> NDArray[np.float32]:
        """Points of q_σ, the mixture with noise added; σ = 0 is the mixture itself."""
        mode = rng.choice(len(self.weights), size=n, p=self.weights)
        spread = np.sqrt(self.stds[mode] ** 2 + sigma**2)
        noise = rng.normal(size=(n, self.means.shape[1]))
        return (self.means[mode] + spread * noise).astype(np.float32)

    def energy(self, z: NDArray[np.float32], sigma: float) -> NDArray[np.float64]:
        """-log q_σ(z), every mode's variance grown by σ²."""
        variance = self.stds**2 + sigma**2
        distance = np.square(z[:, None] - self.means) / variance
        log_modes = -(distance + np.log(2 * np.pi * variance)).sum(axis=2) / 2
        return -logsumexp(log_modes + np.log(self.weights), axis=1)

    def bowl(self, z: NDArray[np.float32], sigma: float) -> NDArray[np.float64]:
        """The energy of one Gaussian with the mixture's mean and covariance, at noise σ."""
        mean = self.weights @ self.means
        apart = self.means - mean
        covariance = apart.T @ (self.weights[:, None] * apart)
        covariance += np.diag(self.weights @ self.stds**2 + sigma**2)
        return (((z - mean) @ np.linalg.inv(covariance)) * (z - mean)).sum(axis=1) / 2


TWO = Mixture(
    weights=np.array([0.5, 0.3, 0.2]),
    means=np.array([[-1, 0], [1, 0.5], [0.5, -1]]),
    stds=np.array([[0.6, 0.5], [0.5, 0.6], [0.6, 0.4]]),
)
EIGHT = Mixture(
    weights=np.array([0.4, 0.3, 0.2, 0.1]),
    means=np.array(
        [
            [1, 1, 0, 0, 0, 0, -1, 0],
            [-1, 0, 1, 0, 0, 0, 0, 1],
            [0, -1, 0, -1, 1, 0, 0, 0],
            [0, 0, -1, 1, -1, 0, 0, -1],
        ]
    ),
    stds=np.array([[0.5, 0.6] * 4, [0.6, 0.4] * 4, [0.7, 0.7] * 4, [0.4, 0.5] * 4]),
)


def correlations(mixture: Mixture, config: Config) -> NDArray[np.float64]:
    """Pearson's between the trained energy and -log q_σ on new points of q_σ, `(L,)`."""
    rng = np.random.default_rng(1)
    samples = mixture.sample(100_000, 0, rng)
    data = TrainingSet(
        len(samples), lambda rows: (samples[rows], np.ones(len(rows), np.float32)), digest=""
    )
    weights, _ = train(data, config, report=silent)
    network = fold(weights, config)
    result = []
    for i, sigma in enumerate(config.sigmas):
        z = mixture.sample(2000, sigma, rng)
        result.append(np.corrcoef(network.energies(z)[:, i], mixture.energy(z, sigma))[0, 1])
    return np.array(result)


def test_one_gaussian_does_not_pass_for_the_mixture() -> None:
    # else a correlation of 0.99 would say little
    for mixture in (TWO, EIGHT):
        z = mixture.sample(4000, 0.1, np.random.default_rng(0))
        correlation = np.corrcoef(mixture.bowl(z, 0.1), mixture.energy(z, 0.1))[0, 1]
        assert correlation < 0.85


def test_a_trained_network_recovers_the_noisy_energy_of_a_mixture_in_two_dimensions() -> None:
    config = Config(
        K=2, width=96, blocks=2, sigma_width=16,
        epochs=4, batch_size=512, learning_rate=8e-3, final_rate=0.02,
        ema_decay=0.99, ema_warmup=True,
    )  # fmt: skip
    found = correlations(TWO, config)
    logger.info("correlations in %d-D: %s", config.K, found.round(4))
    assert found.shape == (10,)
    assert (found >= 0.99).all(), found


@pytest.mark.slow
def test_a_trained_network_recovers_the_noisy_energy_of_a_mixture_in_eight_dimensions() -> None:
    config = Config(
        K=8, width=192, blocks=2, sigma_width=32,
        epochs=5, batch_size=512, learning_rate=4e-3, final_rate=0.02,
        ema_decay=0.99, ema_warmup=True,
    )  # fmt: skip
    found = correlations(EIGHT, config)
    logger.info("correlations in %d-D: %s", config.K, found.round(4))
    assert found.shape == (10,)
    assert (found >= 0.99).all(), found
