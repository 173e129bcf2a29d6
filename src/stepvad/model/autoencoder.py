"""Autoencoder and variational autoencoder of windows (Supp., PCA vs. Autoencoders)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stepvad.config import Config
from stepvad.model.device import torch_device
from stepvad.model.encoder import Encoder
from stepvad.progress import Progress, Report

HIDDEN = 512
"""Hidden units; the paper lists the layers but not their sizes."""
LEARNING_RATE = 1e-3
"""Peak rate of Adam, decayed to zero along a cosine."""
KL_WEIGHT = 0.01
"""Weight of the VAE's divergence relative to the squared error, summed over a window's values.

With the textbook value 1, all but a few of the 48 latents collapse on standardised windows.
"""


class Autoencoder(nn.Module):
    """x → Linear → BatchNorm → ReLU → Linear → latent, and back in reverse order."""

    def __init__(self, D: int, K: int, *, variational: bool) -> None:
        super().__init__()
        self.K, self.variational = K, variational
        self.hidden = nn.Linear(D, HIDDEN)
        self.norm = nn.BatchNorm1d(HIDDEN)
        self.latent = nn.Linear(HIDDEN, 2 * K if variational else K)
        self.decoder = nn.Sequential(
            nn.Linear(K, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, D)
        )

    def loss(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Squared error of the reconstruction, plus the VAE's divergence from N(0, I)."""
        z = self.latent(torch.relu(self.norm(self.hidden(x))))
        if not self.variational:
            return (self.decoder(z) - x).square().sum(dim=1).mean()
        mean, log_var = z.split(self.K, dim=1)
        noise = torch.randn(mean.shape, generator=generator).to(mean.device)
        error = (self.decoder(mean + noise * (log_var / 2).exp()) - x).square().sum(dim=1)
        divergence = (mean.square() + log_var.exp() - 1 - log_var).sum(dim=1) / 2
        return (error + KL_WEIGHT * divergence).mean()

    @torch.no_grad()
    def encoder(self) -> Encoder:
        """The trained encoder with its normalisation folded in; a VAE gives its mean."""
        mean, var = self.norm.get_buffer("running_mean"), self.norm.get_buffer("running_var")
        scale = self.norm.weight / (var + self.norm.eps).sqrt()
        W_1 = self.hidden.weight * scale[:, None]
        b_1 = (self.hidden.bias - mean) * scale + self.norm.bias
        W_2, b_2 = self.latent.weight[: self.K], self.latent.bias[: self.K]
        return Encoder(*(part.detach().cpu().numpy().copy() for part in (W_1, b_1, W_2, b_2)))


def train(
    x: Callable[[NDArray[np.int64]], NDArray[np.float32]],
    n_windows: int,
    D: int,
    config: Config,
    report: Report,
    device: str = "cpu",
) -> Encoder:
    """Train an autoencoder and return its encoder; `x(rows)` returns training windows `(n, D)`."""
    where = torch_device(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        net = Autoencoder(D, config.K, variational=config.projection == "vae").to(where)
    generator = torch.Generator().manual_seed(config.seed)
    optimiser = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    per_epoch = max(n_windows // config.batch_size, 1)
    n_steps = min(config.projection_epochs * per_epoch, config.max_steps or math.inf)
    for step in range(int(n_steps)):
        epoch, batch = divmod(step, per_epoch)
        if batch == 0:
            order = np.random.default_rng([config.seed, epoch]).permutation(n_windows)
        rows = order[batch * config.batch_size : (batch + 1) * config.batch_size]
        for group in optimiser.param_groups:
            group["lr"] = LEARNING_RATE * (1 + math.cos(math.pi * step / n_steps)) / 2
        loss = net.loss(torch.from_numpy(x(rows)).to(where), generator)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        note = f"epoch {epoch + 1}, loss {loss.item():.3f}"
        report(Progress("projection", step + 1, int(n_steps), note))
    return net.encoder()
