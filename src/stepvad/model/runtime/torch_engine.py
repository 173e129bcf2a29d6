"""The folded network on torch, where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from stepvad.model.folded import Blocks, Float32Array, Folded


def torch_blocks(folded: Folded, *, bfloat16: bool) -> Blocks:
    """The blocks on torch; with `bfloat16`, only the large products use it."""
    precision = torch.bfloat16 if bfloat16 else torch.float32
    W = [torch.from_numpy(values).to(precision) for values in folded.W]
    b_1, *b = torch.from_numpy(folded.b)
    head = torch.from_numpy(folded.head)

    @torch.inference_mode()
    def run(entry: Sequence[Float32Array]) -> Float32Array:
        a, *skip = (torch.from_numpy(values)[:, None] for values in entry)
        s: Tensor = F.gelu(a + b_1)  # (N, L, width)
        for h in skip:
            s += h
        for W_i, b_i in zip(W, b, strict=True):
            y = F.gelu(F.linear(s.to(precision), W_i) + b_i)
            s = s.add_(y) if skip else y
        return (s @ head).numpy()

    return run


def torch_has_bfloat16() -> bool:
    """Whether torch multiplies bfloat16 faster than float32 on this processor."""
    known: Callable[[], dict[str, bool]] = getattr(torch.cpu, "get_capabilities", dict)
    return known().get("amx_bf16", False)
