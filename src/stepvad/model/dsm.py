"""Denoising score matching in PC-space, weighted by confidence (Sec. 3.1-3.3, Eq. 7).

The gradient ∇_z f_θ(z, σ) is known in closed form: the loss needs one ordinary backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from stepvad.model.energy import Block, Energy, PlainBlock

Gradient = Callable[[Energy, Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""∇_z f_θ(z, σ), `(N, K)`, of f, z, `sigmas`, the `scale` of each row and the block jitter."""


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
    # draws, on the CPU for any device: a scale and a direction for each window
    N = len(pi_x)
    scale = torch.randint(len(sigmas), (N,), generator=generator).to(pi_x.device)
    epsilon = torch.randn(pi_x.shape, generator=generator).to(pi_x.device)
    noise = f.draw_jitter(N, generator)
    # noisy points, and the score of the noise that the gradient should match, (N, K) each
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


def closed_form(
    f: Energy,
    z: Tensor,
    sigmas: Tensor,
    scale: Tensor,
    noise: Tensor | None = None,
    *,
    precision: torch.dtype | None = None,
) -> Tensor:
    """∇_z f_θ(z, σ), `(N, K)`, at σ = `sigmas[scale]`.

    With a_i = W_i h_i + b_i and g_i = ∂f/∂h_i, every block gives g_i = g_{i+1} + W_iᵀ (g_{i+1} ⊙
    GELU'(a_i)). The input layer and block 1 are one product; σ's branches are computed once per
    scale. `noise (blocks, N, width)` is the block jitter; `precision` is that of large products.
    """
    blocks = cast("list[Block | PlainBlock]", list(f.blocks))
    first, *others = blocks
    # the input layer and block 1 are linear in z: one product
    W_in, W_1 = f.input.weight, first.linear.weight
    W_1in = W_1 @ W_in  # (width, K + 1)
    inputs = torch.cat([z, sigmas[scale, None]], dim=1)
    h = F.linear(inputs, W_in, f.input.bias)
    a = F.linear(inputs, W_1in, W_1 @ f.input.bias + first.linear.bias)
    if noise is not None:
        h, a = h + noise[0], a + F.linear(noise[0], W_1)
    # forward: inputs a_i of GELU and its slopes, (N, width) each
    at_scale = F.one_hot(scale, len(sigmas)).double()  # threads add to an index in any order
    slopes = []
    for i, block in enumerate(blocks):
        if i > 0:
            h = h if noise is None else h + noise[i]
            a = _product(h, block.linear.weight.T, precision) + block.linear.bias
        y, slope = gelu_and_slope(a)
        slopes.append(slope)
        h = h + y + _of_scale(at_scale, block, sigmas) if isinstance(block, Block) else y
    # backward: g_i from the head down to block 1
    g = f.head.weight.expand(len(z), -1)
    for block, slope in zip(reversed(others), reversed(slopes[1:]), strict=True):
        g_a = _product(g * slope, block.linear.weight, precision)
        g = g + g_a if isinstance(block, Block) else g_a
    K = z.shape[1]
    gradient = (g * slopes[0]) @ W_1in[:, :K]
    return gradient + g @ W_in[:, :K] if isinstance(first, Block) else gradient


def gelu_and_slope(a: Tensor) -> tuple[Tensor, Tensor]:
    """GELU(a) = a Φ(a) and its slope Φ(a) + a φ(a), which share their expensive terms."""
    Phi = (torch.erf(a * math.sqrt(0.5)) + 1) * 0.5
    phi = torch.exp(a * a * -0.5) * (1 / math.sqrt(2 * math.pi))
    return a * Phi, torch.addcmul(Phi, a, phi)


def _product(rows: Tensor, W: Tensor, precision: torch.dtype | None) -> Tensor:
    if precision is None:
        return rows @ W
    return (rows.to(precision) @ W.to(precision)).to(rows.dtype)


def _of_scale(at_scale: Tensor, block: Block, sigmas: Tensor) -> Tensor:
    """The modulation of each window's scale; sums of its gradient do not depend on their order."""
    modulation = block.modulation(sigmas[:, None])
    return (at_scale @ modulation.double()).to(modulation.dtype)
