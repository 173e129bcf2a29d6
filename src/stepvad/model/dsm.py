"""Denoising score matching in PC-space, weighted by confidence (Sec. 3.1-3.3, Eq. 7)."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from stepvad.model.energy import Energy


class Gradient(Protocol):
    """A function that returns ∇_z f_θ(z, σ), `(N, K)`, at σ = `sigmas[scale]`."""

    def __call__(
        self, f: Energy, z: Tensor, sigmas: Tensor, scale: Tensor, noise: Tensor | None
    ) -> Tensor:
        """The gradient, itself differentiable in θ; `noise` is the block jitter."""
        ...


def loss(
    f: Energy,
    pi_x: Tensor,
    c: Tensor,
    sigmas: Tensor,
    *,
    generator: torch.Generator,
    gradient: Gradient | None = None,
) -> Tensor:
    """E[c(x) λ(σ) ‖∇_z f_θ(z, σ) - (z - π(x)) / σ²‖²] with λ(σ) = σ² (Eq. 7).

    π(x) `(N, K)`, c `(N,)`; each row draws its own scale from `sigmas (L,)` and its own noise,
    always on the CPU. `gradient` defaults to automatic differentiation.
    """
    N = len(pi_x)
    scale = torch.randint(len(sigmas), (N,), generator=generator).to(pi_x.device)
    epsilon = torch.randn(pi_x.shape, generator=generator).to(pi_x.device)
    noise = f.draw_jitter(N, generator)
    sigma = sigmas[scale, None]  # σ ~ U({σ_i})
    z = pi_x + sigma * epsilon  # z ~ N(π(x), σ² I)
    target = (z - pi_x) / sigma**2
    grad = (gradient or grad_f)(f, z, sigmas, scale, noise)
    mismatch = (grad - target).square().sum(dim=1)
    lam = sigma.squeeze(1) ** 2
    return (c * lam * mismatch).mean()


def grad_f(
    f: Energy, z: Tensor, sigmas: Tensor, scale: Tensor, noise: Tensor | None = None
) -> Tensor:
    """∇_z f_θ(z, σ) by automatic differentiation, for any f."""
    z = z.detach().requires_grad_()
    energies = f(z, sigmas[scale, None], noise=noise)
    (gradient,) = torch.autograd.grad(energies.sum(), z, create_graph=True)
    return gradient
