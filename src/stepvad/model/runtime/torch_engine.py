"""The folded network on torch, where it is installed: on the processor, or on another device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from stepvad.model.device import torch_device
from stepvad.model.folded import Blocks, Energies, Float32Array, Folded

DEVICE_ROWS = 4096
"""Windows per batch on a device: enough to keep it busy, 170 MB for each hidden state."""
TensorBlocks = Callable[[Sequence[Tensor]], Tensor]
"""Like `Folded.blocks`, from tensors to a tensor of one device."""


def torch_blocks(folded: Folded, *, bfloat16: bool) -> Blocks:
    """The blocks on the processor; with `bfloat16`, only the large products use it."""
    blocks = tensor_blocks(folded, torch.device("cpu"), bfloat16=bfloat16)

    @torch.inference_mode()
    def run(entry: Sequence[Float32Array]) -> Float32Array:
        return blocks([torch.from_numpy(values) for values in entry]).numpy()

    return run


def torch_energies(folded: Folded, device: str, *, bfloat16: bool) -> Energies:
    """The whole network on a device: π(x) goes there and energies come back."""
    energies = tensor_energies(folded, torch_device(device), bfloat16=bfloat16)

    @torch.inference_mode()
    def run(pi_x: Float32Array) -> Float32Array:
        parts = [
            energies(torch.from_numpy(pi_x[i : i + DEVICE_ROWS])).cpu().numpy()
            for i in range(0, len(pi_x), DEVICE_ROWS)
        ]
        together = np.concatenate([np.empty((0, folded.L), np.float32), *parts])
        return (together + folded.constant).astype(np.float32)

    return run


def tensor_energies(
    folded: Folded, device: torch.device, *, bfloat16: bool
) -> Callable[[Tensor], Tensor]:
    """The network without the constants after its head, `(N, K)` to `(N, L)` on the device."""
    entries = [torch.from_numpy(W).to(device) for W in (folded.W_1z, folded.W_z) if W is not None]
    blocks = tensor_blocks(folded, device, bfloat16=bfloat16)

    def run(pi_x: Tensor) -> Tensor:
        there = pi_x.to(device)
        return blocks([there @ W.T for W in entries])

    return run


def tensor_blocks(folded: Folded, device: torch.device, *, bfloat16: bool) -> TensorBlocks:
    """The blocks and the head on tensors of a device."""
    precision = torch.bfloat16 if bfloat16 else torch.float32
    W = [torch.from_numpy(values).to(device, precision) for values in folded.W]
    b_1, *b = torch.from_numpy(folded.b).to(device)
    head = torch.from_numpy(folded.head).to(device)

    def run(entry: Sequence[Tensor]) -> Tensor:
        a, *skip = (values[:, None] for values in entry)
        s: Tensor = F.gelu(a + b_1)  # (N, L, width)
        for h in skip:
            s += h
        for W_i, b_i in zip(W, b, strict=True):
            y = F.gelu(F.linear(s.to(precision), W_i) + b_i)
            s = s.add_(y) if skip else y
        return s @ head

    return run
