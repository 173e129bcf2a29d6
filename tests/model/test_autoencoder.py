"""Autoencoder and variational autoencoder of windows: loss, training, and the encoder in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from stepvad.config import Config, Projection
from stepvad.model import autoencoder
from stepvad.model.autoencoder import KL_WEIGHT, LEARNING_RATE, Autoencoder, train
from stepvad.model.encoder import Encoder
from stepvad.progress import Progress, silent

D = 12
BOTH: tuple[Projection, ...] = ("autoencoder", "vae")
CONFIG = Config(K=3, projection="autoencoder", projection_epochs=4, batch_size=64)


def flat_data(n: int, K: int, seed: int = 0) -> NDArray[np.float32]:
    """Points of a K-dimensional subspace of R^D."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, K)) @ rng.normal(size=(K, D))).astype(np.float32)


def trained(
    x: NDArray[np.float32], config: Config, monkeypatch: pytest.MonkeyPatch
) -> tuple[Encoder, Autoencoder]:
    """The encoder that training returns, and the network that it trained."""
    seen: list[Autoencoder] = []

    class Seen(Autoencoder):
        def __init__(self, D: int, K: int, *, variational: bool) -> None:
            super().__init__(D, K, variational=variational)
            seen.append(self)

    monkeypatch.setattr(autoencoder, "Autoencoder", Seen)
    encoder = train(lambda rows: x[rows], len(x), D, config, silent)
    return encoder, seen[0].eval()


def unsettled(*, variational: bool) -> Autoencoder:
    """A network whose normalisation is far from the identity."""
    torch.manual_seed(0)
    net = Autoencoder(D, 3, variational=variational)
    with torch.no_grad():
        for name, value in net.norm.state_dict().items():
            if name != "num_batches_tracked":
                value.uniform_(0.5, 2.0)
    return net.eval()


def missed(net: Autoencoder, encoder: Encoder, x: NDArray[np.float32]) -> float:
    """Share of the data's square that does not come back from the latents."""
    with torch.no_grad():
        back = net.decoder(torch.from_numpy(encoder.project(x.reshape(-1, 2, 3, 2)))).numpy()
    return float(np.square(back - x).sum() / np.square(x).sum())


@pytest.mark.parametrize("variational", [False, True])
def test_the_encoder_in_numpy_is_the_network_in_evaluation_mode(variational: bool) -> None:
    net, x = unsettled(variational=variational), flat_data(50, 5)
    with torch.no_grad():
        z = net.latent(torch.relu(net.norm(net.hidden(torch.from_numpy(x)))))
    assert z.shape == (50, 6 if variational else 3)
    pi_x = net.encoder().project(x.reshape(50, 2, 3, 2))
    assert pi_x.dtype == np.float32
    np.testing.assert_allclose(pi_x, z[:, :3].numpy(), rtol=1e-4, atol=1e-5)


def test_an_encoder_is_its_own_and_does_not_train_on() -> None:
    net = unsettled(variational=False)
    encoder, x = net.encoder(), flat_data(5, 5).reshape(5, 2, 3, 2)
    before = encoder.project(x)
    with torch.no_grad():
        net.latent.bias.add_(1)
    np.testing.assert_array_equal(encoder.project(x), before)


def test_an_encoder_by_hand() -> None:
    W_1 = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
    b_1 = np.array([0, -1, 0], np.float32)
    W_2 = np.array([[2, 3, 5]], np.float32)
    encoder = Encoder(W_1, b_1, W_2, np.array([7], np.float32))
    x = np.array([[4, 3], [-4, 0]], np.float32).reshape(2, 2, 1, 1)
    # hidden (4, 2, 0) and (0, 0, 4), with what is below zero cut off
    np.testing.assert_array_equal(encoder.project(x), [[2 * 4 + 3 * 2 + 7], [5 * 4 + 7]])


def test_a_linear_map_after_an_encoder_is_folded_into_it() -> None:
    encoder, x = unsettled(variational=False).encoder(), flat_data(20, 5).reshape(20, 2, 3, 2)
    rng = np.random.default_rng(0)
    W, mu = rng.normal(size=(3, 3)).astype(np.float32), np.array([1, -2, 3], np.float32)
    expected = (encoder.project(x) - mu) @ W
    np.testing.assert_allclose(encoder.then(W, mu).project(x), expected, rtol=1e-4, atol=1e-4)


def blank_decoder(net: Autoencoder) -> None:
    """Make it answer zero, whatever the latents."""
    last = net.decoder[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)


def test_the_loss_is_the_squared_error_summed_over_a_window() -> None:
    net, x = unsettled(variational=False), torch.from_numpy(flat_data(40, 5))
    blank_decoder(net)
    loss = net.loss(x, torch.Generator())
    assert loss.item() == pytest.approx(x.square().sum(dim=1).mean().item(), rel=1e-5)


def test_the_vae_adds_the_divergence_from_a_standard_normal() -> None:
    net, x = unsettled(variational=True), torch.full((40, D), 0.1)
    blank_decoder(net)
    mean, variance = torch.tensor([2.0, 0.0, -1.0]), torch.tensor([9.0, 1.0, 0.25])
    with torch.no_grad():
        net.latent.weight.zero_()
        net.latent.bias.copy_(torch.cat([mean, variance.log()]))
    divergence = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, variance.sqrt()), torch.distributions.Normal(0, 1)
    ).sum()
    expected = D * 0.1**2 + KL_WEIGHT * divergence.item()
    assert net.loss(x, torch.Generator()).item() == pytest.approx(expected, rel=1e-6)


def test_the_vae_decodes_latents_with_noise_of_their_own_variance() -> None:
    net, x = unsettled(variational=True), torch.from_numpy(flat_data(40_000, 5))
    with torch.no_grad():
        net.latent.weight.zero_()
        net.latent.bias.copy_(torch.tensor([1.0, 2.0, 3.0, *np.log([4.0, 9.0, 16.0])]))
    seen: list[torch.Tensor] = []
    net.decoder.register_forward_pre_hook(lambda _, latents: seen.append(latents[0]))
    net.loss(x, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(seen[0].detach().mean(dim=0), [1, 2, 3], atol=0.1)
    np.testing.assert_allclose(seen[0].detach().std(dim=0), [2, 3, 4], rtol=0.03)


@pytest.mark.parametrize("kind", BOTH)
def test_training_learns_data_with_as_many_dimensions_as_latents(
    kind: Projection, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = flat_data(1024, 3)
    config = Config(K=3, projection=kind, projection_epochs=25, batch_size=64)
    encoder, net = trained(x, config, monkeypatch)
    torch.manual_seed(0)
    untrained = Autoencoder(D, 3, variational=kind == "vae").eval()
    assert missed(untrained, untrained.encoder(), x) > 0.9
    assert missed(net, encoder, x) < 0.05


@pytest.mark.parametrize("kind", BOTH)
def test_fewer_latents_than_dimensions_keep_part_of_the_data(
    kind: Projection, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = flat_data(512, 6)
    config = Config(K=2, projection=kind, projection_epochs=20, batch_size=64)
    encoder, net = trained(x, config, monkeypatch)
    assert encoder.project(x.reshape(-1, 2, 3, 2)).shape == (512, 2)
    assert 0.1 < missed(net, encoder, x) < 0.9


@pytest.mark.parametrize("kind", BOTH)
def test_one_seed_is_one_encoder_and_leaves_others_generators_alone(kind: Projection) -> None:
    x = flat_data(200, 3)

    def once(seed: int) -> bytes:
        config = Config(K=3, projection=kind, projection_epochs=2, batch_size=64, seed=seed)
        encoder = train(lambda rows: x[rows], len(x), D, config, silent)
        return b"".join(part.tobytes() for part in (encoder.W_1, encoder.W_2, encoder.b_2))

    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = once(0)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    assert once(0) == first
    assert once(1) != first


def test_every_epoch_shows_every_window_once_in_a_new_order() -> None:
    x = flat_data(256, 3)
    shown: list[NDArray[np.int64]] = []

    def batch(rows: NDArray[np.int64]) -> NDArray[np.float32]:
        shown.append(rows)
        return x[rows]

    train(batch, len(x), D, CONFIG, silent)
    epochs = np.concatenate(shown).reshape(CONFIG.projection_epochs, 256)
    np.testing.assert_array_equal(np.sort(epochs, axis=1), np.tile(np.arange(256), (4, 1)))
    assert len({epoch.tobytes() for epoch in epochs}) == 4
    assert {len(rows) for rows in shown} == {64}


@pytest.mark.parametrize(
    ("n", "max_steps", "steps"), [(256, None, 16), (300, None, 16), (10, None, 4), (256, 7, 7)]
)
def test_training_takes_its_epochs_or_as_many_steps_as_it_may(
    n: int, max_steps: int | None, steps: int
) -> None:
    x, reports = flat_data(n, 3), list[Progress]()
    config = Config(K=3, projection_epochs=4, batch_size=64, max_steps=max_steps)
    train(lambda rows: x[rows], n, D, config, reports.append)
    assert [report.done for report in reports] == list(range(1, steps + 1))
    assert {(report.stage, report.total) for report in reports} == {("projection", steps)}
    assert f"epoch {math.ceil(steps / max(n // 64, 1))}, loss " in reports[-1].note


def test_the_rate_falls_to_zero_along_a_cosine(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    step = torch.optim.Adam.step

    def recording(self: torch.optim.Adam) -> None:
        rates.extend(group["lr"] for group in self.param_groups)
        step(self)

    monkeypatch.setattr(torch.optim.Adam, "step", recording)
    x = flat_data(256, 3)
    train(lambda rows: x[rows], len(x), D, CONFIG, silent)
    shares = (1 + np.cos(np.pi * np.arange(16) / 16)) / 2
    np.testing.assert_allclose(rates, LEARNING_RATE * shares)
    assert rates[8] == pytest.approx(LEARNING_RATE / 2)
