"""The energy model f_θ(z, σ), a σ-modulated residual MLP (Sec. 3.4, Fig. 3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stepvad.config import Config

ALPHA_START = (0.001, 1.0)
"""Range of the initial weights of the learned scales α(σ)."""


class Block(nn.Module):
    """h + GELU(W h) + LayerNorm(W₂ GELU(W₁ σ)) · α(σ) (Fig. 3, right)."""

    def __init__(self, width: int, sigma_width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.sigma_in = nn.Linear(1, sigma_width)
        self.sigma_out = nn.Linear(sigma_width, width)
        self.norm = nn.LayerNorm(width)
        self.alpha = nn.Linear(1, width, bias=False)
        nn.init.uniform_(self.alpha.weight, *ALPHA_START)

    def forward(self, h: Tensor, sigma: Tensor) -> Tensor:
        """Hidden state `(N, width)` and σ `(N, 1)` to the next hidden state."""
        return h + F.gelu(self.linear(h)) + self.modulation(sigma)

    def modulation(self, sigma: Tensor) -> Tensor:
        """LayerNorm(W₂ GELU(W₁ σ)) · α(σ), `(N, width)`."""
        return self.norm(self.sigma_out(F.gelu(self.sigma_in(sigma)))) * self.alpha(sigma)


class PlainBlock(nn.Module):
    """GELU(W h), a layer of the plain MLP (Sec. 3.4): σ enters only through the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, h: Tensor, sigma: Tensor) -> Tensor:
        """Hidden state `(N, width)` to the next hidden state."""
        return F.gelu(self.linear(h))


class Energy(nn.Module):
    """f_θ(z, σ): z `(N, K)` and σ `(N, 1)` to energies `(N,)` (Fig. 3, left)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input = nn.Linear(config.K + 1, config.width)
        plain, width = config.network == "vanilla", config.width
        self.blocks = nn.ModuleList(
            PlainBlock(width) if plain else Block(width, config.sigma_width)
            for _ in range(config.blocks)
        )
        self.head = nn.Linear(config.width, 1)
        self.block_jitter = config.reference.block_jitter

    def forward(self, z: Tensor, sigma: Tensor, *, noise: Tensor | None = None) -> Tensor:
        """Energies; `noise (blocks, N, width)`, given in training, is the block jitter."""
        h = self.input(torch.cat([z, sigma], dim=1))
        for i, block in enumerate(self.blocks):
            h = block(h if noise is None else h + noise[i], sigma)
        return self.head(h).squeeze(1)

    def draw_jitter(self, N: int, generator: torch.Generator) -> Tensor | None:
        """Noise to add before every block, `(blocks, N, width)`; None if it is off."""
        if self.block_jitter == 0:
            return None
        shape = (len(self.blocks), N, self.head.in_features)
        drawn = torch.randn(shape, generator=generator).to(self.head.weight.device)
        return self.block_jitter * drawn
