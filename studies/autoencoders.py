"""Compare PCA with autoencoders as the projection of STEP (Supp., PCA vs. Autoencoders).

    python -m studies autoencoders mocap1 --width 256 --max-steps 1500

The autoencoders are custom methods: STEP whose space is learned by one. With --anomalies, each
projection also learns from the validation clips, which show anomalies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stepvad.cli.terminal import print_table, progress_bars, write_table
from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import Report
from stepvad.evaluation import CustomMethod, Dataset, MethodResult, compare, open_dataset
from stepvad.evaluation.protocol import FrameView
from stepvad.model import footage
from stepvad.model.footage import Footage
from stepvad.model.pcspace import Moments, PCSpace
from stepvad.model.scoring import BATCH
from stepvad.model.training import flushed
from stepvad.poses import Clip
from studies import fits

COLUMNS = ("projection", "AUROC", "95 % over clips", "lead of STEP", "AP", "EER")
EPOCHS = 200
"""Passes over the windows to train an autoencoder."""
HIDDEN = 512
"""Hidden units; the paper lists the layers but not their sizes."""
LEARNING_RATE = 1e-3
"""Peak rate of Adam, decayed to zero along a cosine."""
KL_WEIGHT = 0.01
"""Weight of the VAE's divergence relative to the squared error, summed over a window's values.

With the textbook value 1, all but a few of the 48 latents collapse on standardised windows.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = fits.parser_of(__doc__)
    parser.add_argument("data", type=Path, help="data set: poses under pose, labels under gt")
    parser.add_argument("--anomalies", action="store_true", help="projections see anomalies")
    parser.add_argument("--K", type=int, default=48, help="components, or latents")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", default="full", help="full, hr, st, ub or validation")
    parser.add_argument("--frames", default="all", help="all, covered or one-person")
    parser.add_argument("--table", type=Path, help=".csv, otherwise Markdown")
    fits.add_network(parser)
    given = parser.parse_args(arguments)
    dataset = open_dataset(given.data, split=given.split)
    config = fits.config_of(given, K=given.K, seed=given.seed)
    kinds = ("PCA", "autoencoder", "VAE") if given.anomalies else ("autoencoder", "VAE")
    methods = [custom(kind, config, dataset, anomalies=given.anomalies) for kind in kinds]
    with progress_bars() as report:
        view = FrameView(smoothed=False, frames=given.frames)
        lines = compare(["step", *methods], dataset, config=config, view=view, report=report)
    rows = [_cells(line) for line in lines]
    print_table(dataset.name, COLUMNS, rows)
    if given.table is not None:
        write_table(COLUMNS, rows, given.table)


def custom(
    kind: str, config: Config, dataset: Dataset, *, anomalies: bool
) -> CustomMethod[Detector]:
    """STEP on this projection, as a method of one's own."""

    def fit(clips: Iterable[Clip]) -> Detector:
        strange = [clip for clip, _ in dataset.validation_set().test_clips()] if anomalies else None
        space = partial(encoder, variational=kind == "VAE")
        own = mock.patch.object(footage, "fit_space", space)
        with own if kind != "PCA" else mock.MagicMock():
            return Detector.fit(clips, config, projection_clips=strange)

    name = f"STEP on {kind}" + (" that saw anomalies" if anomalies else "")
    return CustomMethod(name, fit, Detector.score)


def _cells(line: MethodResult) -> list[str]:
    lead = "-"
    if line.lead is not None:
        value, low, high = (100 * x for x in (line.lead.value, line.lead.low, line.lead.high))
        lead = f"{value:+.1f} ({low:+.1f} to {high:+.1f})"
    return [
        line.name,
        f"{100 * line.auroc.mean:.1f}",
        f"{100 * line.interval.low:.1f} to {100 * line.interval.high:.1f}",
        lead,
        f"{100 * line.ap:.1f}",
        f"{100 * line.eer:.1f}",
    ]


def encoder(
    parts: Sequence[Footage], config: Config, report: Report, *, variational: bool
) -> Encoder:
    """An encoder whose latents are whitened over the windows it was trained on."""
    batches = (windows for part in parts for windows in part.batches("reading", report))
    x = np.concatenate([windows.x.reshape(len(windows), -1) for windows in batches])
    trained = flushed(lambda _: train(x, config, variational=variational), report)
    if not config.reference.whitening:
        return trained
    latents = (trained.project(x[first : first + BATCH]) for first in range(0, len(x), BATCH))
    space = PCSpace.fit(Moments.measure(latents, config.K), config.K)
    return trained.then(space.W_K / space.scale, space.mu)


@dataclass(frozen=True, slots=True, eq=False)
class Encoder:
    """W_2 ReLU(W_1 x + b_1) + b_2, with `W_1 (H, D)` and `W_2 (K, H)`; D = 2VT."""

    W_1: NDArray[np.float32]
    b_1: NDArray[np.float32]
    W_2: NDArray[np.float32]
    b_2: NDArray[np.float32]

    def project(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The latents π(x): windows `(N, 2, V, T)` to `(N, K)`."""
        hidden = np.maximum(x.reshape(len(x), self.W_1.shape[1]) @ self.W_1.T + self.b_1, 0)
        return (hidden @ self.W_2.T + self.b_2).astype(np.float32, copy=False)

    def then(self, W: NDArray[np.float32], mu: NDArray[np.float32]) -> Encoder:
        """Replace latents z by (z - μ) W, with `W (K, K)`: folds whitening into the encoder."""
        b_2 = ((self.b_2 - mu) @ W).astype(np.float32, copy=False)
        return Encoder(self.W_1, self.b_1, W.T @ self.W_2, b_2)


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
        noise = torch.randn(mean.shape, generator=generator)
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


def train(x: NDArray[np.float32], config: Config, *, variational: bool) -> Encoder:
    """Train an autoencoder on windows `(n, D)` and return its encoder."""
    n_windows, D = x.shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        net = Autoencoder(D, config.K, variational=variational)
    generator = torch.Generator().manual_seed(config.seed)
    optimiser = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    per_epoch = max(n_windows // config.batch_size, 1)
    n_steps = min(EPOCHS * per_epoch, config.max_steps or math.inf)
    for step in range(int(n_steps)):
        epoch, batch = divmod(step, per_epoch)
        if batch == 0:
            order = np.random.default_rng([config.seed, epoch]).permutation(n_windows)
        rows = order[batch * config.batch_size : (batch + 1) * config.batch_size]
        for group in optimiser.param_groups:
            group["lr"] = LEARNING_RATE * (1 + math.cos(math.pi * step / n_steps)) / 2
        loss = net.loss(torch.from_numpy(x[rows]), generator)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return net.encoder()
