"""Denoising score matching in PC-space, weighted by confidence (Sec. 3.1-3.3, Eq. 7)."""

from __future__ import annotations

import torch
from torch import Tensor

from stepvad.energy import Energy


def loss(
    f: Energy, pi_x: Tensor, c: Tensor, sigmas: Tensor, *, generator: torch.Generator
) -> Tensor:
    """E[c(x) λ(σ) ‖∇_z f_θ(z, σ) - (z - π(x)) / σ²‖²] with λ(σ) = σ² (Eq. 7).

    π(x) `(N, K)`, c `(N,)`; each row draws its own scale from `sigmas (L,)` and its own noise.
    """
    N = len(pi_x)
    sigma = sigmas[torch.randint(len(sigmas), (N, 1), generator=generator)]  # σ ~ U({σ_i})
    z = pi_x + sigma * torch.randn(pi_x.shape, generator=generator)  # z ~ N(π(x), σ² I)
    target = (z - pi_x) / sigma**2
    mismatch = (grad_f(f, z, sigma, jitter=generator) - target).square().sum(dim=1)
    lam = sigma.squeeze(1) ** 2
    return (c * lam * mismatch).mean()


def grad_f(f: Energy, z: Tensor, sigma: Tensor, *, jitter: torch.Generator | None = None) -> Tensor:
    """∇_z f_θ(z, σ), `(N, K)`, itself differentiable in θ."""
    z = z.detach().requires_grad_()
    energies = f(z, sigma, jitter=jitter)
    (gradient,) = torch.autograd.grad(energies.sum(), z, create_graph=True)
    return gradient
