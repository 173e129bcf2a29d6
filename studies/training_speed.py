"""One training step, the ways to compute it side by side: medians, and ratios to the first.

The step is that of Eq. 7 with the paper's network and batch: loss, backward, AdamW, average. The
first way differentiates twice (autograd); the others have the input gradient in closed form. The
bare products are those of the closed form alone, as a limit. After them, what one batch costs to
assemble. Steps take turns, so that all ways meet the same machine.

    python -m studies training-speed [--width 1024] [--steps 15] [--threads 1]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from stepvad.config import Compute, Config
from stepvad.evaluation.walkers import make
from stepvad.model import dsm
from stepvad.model.footage import Footage, Projected, fit_space
from stepvad.model.training import TrainingState, ema_decay, fastest_gradient, update_ema
from stepvad.windows.views import ViewSettings

WARM_UP = 40
"""Steps before the first that counts: trained weights make denormals, fresh ones do not."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    torch.set_flush_denormal(True)
    config = Config(width=given.width)
    footage = Footage.from_clips(
        make(seed=0, train_clips=8, test_clips=0).train_clips(), ViewSettings(config)
    )
    windows = Projected.from_footage(footage, fit_space([footage], config), config)
    rows = np.random.default_rng(0).integers(len(footage), size=config.batch_size)
    ways = {
        "autograd twice, float32": step(config, windows, rows, None),
        "closed form, float32": step(config, windows, rows, Compute(precision="float32")),
        "closed form, bfloat16": step(config, windows, rows, Compute(precision="bfloat16")),
        "compiled, float32": step(
            config, windows, rows, Compute(precision="float32", compiled=True)
        ),
        "compiled, bfloat16": step(
            config, windows, rows, Compute(precision="bfloat16", compiled=True)
        ),
        "bare products, float32": products(config, torch.float32),
        "bare products, bfloat16": products(config, torch.bfloat16),
        "assembling a batch": lambda: windows.batch(rows),
    }
    report(measure(ways, given.steps))


def step(
    config: Config, windows: Projected, rows: np.ndarray, compute: Compute | None
) -> Callable[[], object]:
    """One whole step of a training of its own; without `compute`, differentiating twice."""
    state = TrainingState.start(config)
    gradient = None if compute is None else fastest_gradient(config, compute, n_steps=0)
    sigmas = torch.tensor(config.sigmas, dtype=torch.float32)

    def run() -> None:
        pi_x, c = (torch.from_numpy(array) for array in windows.batch(rows))
        loss = dsm.loss(state.f, pi_x, c, sigmas, generator=state.generator, gradient=gradient)
        state.optimiser.zero_grad()
        loss.backward()
        state.optimiser.step()
        state.step += 1
        update_ema(state.ema, state.f, ema_decay(state.step, config))

    return run


def products(config: Config, precision: torch.dtype) -> Callable[[], object]:
    """The large products of one step: 2 (blocks - 1) forwards, twice as many backwards."""
    rows = torch.randn(config.batch_size, config.width).to(precision)
    weights = torch.randn(config.width, config.width).to(precision)

    def run() -> None:
        for _ in range(2 * (config.blocks - 1)):
            _ = rows @ weights
            _ = rows @ weights.T
            _ = rows.T @ rows

    return run


def measure(ways: dict[str, Callable[[], object]], steps: int) -> dict[str, list[float]]:
    """Seconds of each way, in turns."""
    for way in ways.values():
        for _ in range(WARM_UP):
            way()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(steps):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            taken[name].append(time.perf_counter() - started)
    return taken


def report(taken: dict[str, list[float]]) -> None:
    """A line for each way."""
    first = statistics.median(next(iter(taken.values())))
    print(f"{'':26}{'median ms':>10}{'quarter to quarter':>22}{'ratio':>8}")
    for name, seconds in taken.items():
        low, middle, high = (1e3 * q for q in statistics.quantiles(seconds, n=4))
        print(f"{name:26}{middle:10.1f}{f'{low:.1f} to {high:.1f}':>22}{1e3 * first / middle:8.2f}")
