"""The unmodified training network and torch's products, for comparison with the engines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from stepvad.model.energy import Energy
from stepvad.model.modelfile import Model


def naive_energies(model: Model) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """f_θ(π(x), σ_i), `(N, L)`: every window as L rows through the trained network."""
    torch.set_flush_denormal(True)
    f = Energy(model.config)
    f.load_state_dict({name: torch.from_numpy(value) for name, value in model.weights.items()})
    sigmas = torch.tensor(model.config.sigmas, dtype=torch.float32)[:, None]

    @torch.inference_mode()
    def energies(pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
        z = torch.from_numpy(pi_x).repeat_interleave(len(sigmas), dim=0)
        return f(z, sigmas.repeat(len(pi_x), 1)).view(len(pi_x), -1).numpy()

    return energies


def torch_products(
    W: NDArray[np.float32], rows: NDArray[np.float32], *, bfloat16: bool
) -> Callable[[], None]:
    """The products of `rows (N, L, width)` with every map of `W (n, width, width)` in turn."""
    precision = torch.bfloat16 if bfloat16 else torch.float32
    maps = [torch.from_numpy(values).to(precision) for values in W]
    start = torch.from_numpy(rows).flatten(0, 1).to(precision)

    @torch.inference_mode()
    def run() -> None:
        h = start
        for values in maps:
            h = F.linear(h, values)

    return run
