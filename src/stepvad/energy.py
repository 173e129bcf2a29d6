"""The energy model f_θ(z, σ), a σ-modulated residual MLP (Sec. 3.4, Fig. 3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stepvad.config import Config

ALPHA_START = (0.001, 1.0)
"""Range in which the learned scales α(σ) start."""


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
        modulation = self.norm(self.sigma_out(F.gelu(self.sigma_in(sigma)))) * self.alpha(sigma)
        return h + F.gelu(self.linear(h)) + modulation


class Energy(nn.Module):
    """f_θ(z, σ): z `(N, K)` and σ `(N, 1)` to energies `(N,)` (Fig. 3, left)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input = nn.Linear(config.K + 1, config.width)
        self.blocks = nn.ModuleList(
            Block(config.width, config.sigma_width) for _ in range(config.blocks)
        )
        self.head = nn.Linear(config.width, 1)
        self.block_jitter = config.block_jitter

    def forward(self, z: Tensor, sigma: Tensor, *, jitter: torch.Generator | None = None) -> Tensor:
        """Energies; a generator, given in training, adds the block jitter."""
        h = self.input(torch.cat([z, sigma], dim=1))
        for block in self.blocks:
            if jitter is not None and self.block_jitter > 0:
                h = h + self.block_jitter * torch.randn(h.shape, generator=jitter)
            h = block(h, sigma)
        return self.head(h).squeeze(1)
