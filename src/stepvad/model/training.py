"""The training loop: AdamW, warm-up, cosine, averaged weights, best epoch, resume (Sec. 4.1)."""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stepvad.codec import Count, Number, check_version, from_plain
from stepvad.config import Checkpoint, Compute, Config, ProductPrecision
from stepvad.errors import ConfigError, DataError, ModelFileError, Progress, Report, StepvadError
from stepvad.model import dsm, modelfile
from stepvad.model.dsm import Gradient, closed_form
from stepvad.model.energy import Energy
from stepvad.model.engines import Weights

CHECKPOINT_VERSION = 1
"""Of a checkpoint's layout."""
START_OVER = "delete this file to start over"
CHECKPOINT_S = 300.0
"""Seconds between checkpoints within an epoch."""
WARM_STEPS, TIMED_STEPS = 3, 8
"""Untimed warm-up steps, the first of which compiles, and timed steps."""
TrainingBatch = tuple[NDArray[np.float32], NDArray[np.float32]]
"""π(x) `(n, K)` and c(x) `(n,)` of some training windows."""


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """The training windows, loaded batch by batch: `batch(rows)` returns π(x) and c(x)."""

    n_windows: int
    batch: Callable[[NDArray[np.int64]], TrainingBatch]
    digest: str

    def steps_per_epoch(self, config: Config) -> int:
        """Batches in one pass over the windows."""
        return math.ceil(self.n_windows / config.batch_size)

    def n_steps(self, config: Config) -> int:
        """Total number of training steps."""
        steps = config.epochs * self.steps_per_epoch(config)
        return min(steps, config.max_steps or steps)


@dataclass(slots=True)
class TrainingState:
    """Everything that changes during training."""

    f: Energy
    ema: Energy
    optimiser: torch.optim.AdamW
    generator: torch.Generator
    gradient: Gradient | None = None
    """How the loss computes ∇_z f."""
    precision: ProductPrecision = "float32"
    """Precision of the large products of the loss."""
    epoch: int = 0
    step: int = 0
    best: float | None = None
    best_weights: dict[str, Tensor] | None = None
    misses: int = 0
    """Validations since the best one."""
    validated: bool = False
    """Whether the best epoch is kept rather than the last."""
    rated_by: str = ""
    """Digest of the clips that an epoch is validated on; empty if there is none."""

    @classmethod
    def start(cls, config: Config, compute: Compute = Compute(), n_steps: int = 0) -> TrainingState:
        """A fresh network, its average (an exact copy) and its optimiser."""
        # weights by the seed, whatever else draws numbers in this process
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            f, ema = Energy(config), Energy(config).requires_grad_(False)
        device = torch_device(compute.device)
        f, ema = f.to(device), ema.to(device)
        ema.load_state_dict(f.state_dict())
        optimiser = torch.optim.AdamW(
            f.parameters(),
            lr=config.learning_rate,
            betas=(config.beta_1, config.beta_2),
            weight_decay=config.weight_decay,
            fused=True,
        )
        generator = torch.Generator().manual_seed(config.seed)
        return cls(
            f,
            ema,
            optimiser,
            generator,
            fastest_gradient(config, compute, n_steps),
            training_precision(config, compute),
        )


def train(
    data: TrainingSet,
    config: Config,
    *,
    report: Report,
    validate: Callable[[Weights, int], float] | None = None,
    rated_by: str = "",
    checkpoint: Checkpoint | None = None,
    compute: Compute = Compute(),
) -> tuple[Weights, int]:
    """Return the averaged weights, at the end or at the best validation, and the epochs trained.

    `report` is called by the thread that trains. `validate` is called after every epoch; higher is
    better; `rated_by` is a digest of the clips it uses. `checkpoint` is written after every epoch
    and every few minutes; a resumed run gives the same bytes as an uninterrupted one.
    """
    state = TrainingState.start(config, compute, data.n_steps(config))
    state.validated, state.rated_by = validate is not None, rated_by
    if checkpoint is not None and checkpoint.resume:
        load_checkpoint(state, data, config, checkpoint.path)

    def save() -> None:
        if checkpoint is not None:
            save_checkpoint(state, data, config, checkpoint.path)

    # one epoch at a time; a run that resumes enters in the middle of one
    patience = math.inf if config.patience is None else config.patience
    while not _finished(state, data, config) and state.misses < patience:
        flushed(lambda report: run_epoch(state, data, config, report, save), report)
        if validate is not None:
            _keep_best(state, validate(to_numpy(state.ema.state_dict()), state.epoch))
        save()
    weights = state.ema.state_dict() if state.best_weights is None else state.best_weights
    return to_numpy(weights), state.epoch


def run_epoch(
    state: TrainingState,
    data: TrainingSet,
    config: Config,
    report: Report,
    save: Callable[[], None] = lambda: None,
) -> None:
    """Run one pass over the training windows in random order, or the rest of it."""
    device = state.f.head.weight.device
    sigmas = torch.tensor(config.sigmas, dtype=torch.float32, device=device)
    warmup, n_steps = data.steps_per_epoch(config), data.n_steps(config)
    saved = time.monotonic()
    # a step: Eq. 7 on a batch, AdamW at the rate of this step, then the averaged weights
    for rows in _batches_left(state, data, config):
        pi_x, c = (torch.from_numpy(array).to(device) for array in data.batch(rows))
        for group in state.optimiser.param_groups:
            group["lr"] = learning_rate(state.step, warmup, n_steps, config)
        loss = dsm.loss(
            state.f, pi_x, c, sigmas, generator=state.generator, gradient=state.gradient
        )
        state.optimiser.zero_grad()
        loss.backward()
        state.optimiser.step()
        state.step += 1
        update_ema(state.ema, state.f, ema_decay(state.step, config))
        if not math.isfinite(value := loss.item()):
            raise StepvadError(
                f"training diverged: expected a finite loss at step {state.step}, got {value}",
                hint="lower the learning rate",
            )
        note = f"epoch {state.epoch + 1}, loss {value:.3f}"
        report(Progress("training", state.step, n_steps, note))
        # epochs may take hours: a checkpoint every few minutes, too
        if time.monotonic() - saved > CHECKPOINT_S:
            save()
            saved = time.monotonic()
    state.epoch += 1


def time_steps(n_windows: int, config: Config, compute: Compute) -> float:
    """Median seconds per step on batches of `n_windows` of noise.

    Compiled if training for `config.max_steps` would be; the untimed warm-up steps do that.
    """
    batch = np.random.default_rng(0).standard_normal((n_windows, config.K), dtype=np.float32)
    c = np.full(n_windows, 0.8, dtype=np.float32)
    data = TrainingSet((WARM_STEPS + TIMED_STEPS) * n_windows, lambda rows: (batch, c), "")
    config = replace(config, batch_size=n_windows)
    state = TrainingState.start(config, compute, config.max_steps or 0)
    ends: list[float] = []
    flushed(
        lambda report: run_epoch(state, data, replace(config, max_steps=None), report),
        lambda _: ends.append(time.perf_counter()),
    )
    seconds = np.diff(ends)[WARM_STEPS - 1 :]
    return float(np.median(seconds))


def learning_rate(step: int, warmup: int, n_steps: int, config: Config) -> float:
    """Linear warm-up over the first epoch, then a cosine down to `final_rate` of the peak.

    In a run of less than two epochs the warm-up takes half of the steps.
    """
    # half of a short run at most
    warmup = min(warmup, max(n_steps // 2, 1))
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    done = (step - warmup) / max(n_steps - warmup - 1, 1)
    share = config.final_rate + (1 - config.final_rate) * (1 + math.cos(math.pi * done)) / 2
    return config.learning_rate * share


def ema_decay(step: int, config: Config) -> float:
    """The average's decay after `step` steps: constant, or warmed up for short runs."""
    if config.ema_warmup:
        return min(config.ema_decay, (1 + step) / (10 + step))
    return config.ema_decay


@torch.no_grad()
def update_ema(ema: Energy, f: Energy, decay: float) -> None:
    """θ_ema ← decay · θ_ema + (1 - decay) · θ."""
    for averaged, current in zip(ema.parameters(), f.parameters(), strict=True):
        averaged.lerp_(current, 1 - decay)


@dataclass(frozen=True, slots=True)
class _Reached:
    """Progress of a training."""

    epoch: Count
    step: Count
    best: Number | None
    misses: Count


def save_checkpoint(state: TrainingState, data: TrainingSet, config: Config, path: Path) -> None:
    """Write the whole training state; a later run resumes from it as if never interrupted."""
    # weights, their average, the best so far, AdamW's moments and the random state
    tensors = {f"f.{name}": value for name, value in state.f.state_dict().items()}
    tensors |= {f"ema.{name}": value for name, value in state.ema.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in (state.best_weights or {}).items()}
    for i, moments in state.optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{i}.{name}": value for name, value in moments.items()}
    tensors["generator"] = state.generator.get_state()
    meta = _identity(state, data, config) | {
        "version": CHECKPOINT_VERSION,
        **asdict(_Reached(state.epoch, state.step, state.best, state.misses)),
    }
    modelfile.write_tensors(to_numpy(tensors), meta, path)


def load_checkpoint(state: TrainingState, data: TrainingSet, config: Config, path: Path) -> None:
    """Restore a fresh state from a checkpoint of the same settings, data and precision."""
    tensors, meta = _read_checkpoint(path)
    try:
        check_version("checkpoint", meta.get("version"), CHECKPOINT_VERSION)
    except DataError as error:
        raise ModelFileError(f"{path}: {error.problem}", hint=error.hint) from None
    _check_identity(_identity(state, data, config), meta, path)
    try:
        _restore(state, {name: torch.from_numpy(value) for name, value in tensors.items()}, meta)
    except (KeyError, RuntimeError, TypeError, ValueError, DataError) as error:
        raise ModelFileError(
            f"{path}: expected a complete checkpoint, got one with parts missing or changed",
            hint=START_OVER,
        ) from error


def _read_checkpoint(path: Path) -> tuple[dict[str, NDArray[Any]], modelfile.Metadata]:
    """The tensors and facts of a file that is a checkpoint."""
    try:
        tensors, meta, _ = modelfile.read_with_digest(path)
    except ModelFileError as error:
        if isinstance(error.__cause__, OSError):
            raise  # it may be whole
        raise ModelFileError(
            f"{path}: expected the checkpoint of a training, got a damaged file or another one",
            hint=f"{START_OVER} if it is damaged, or name another one",
        ) from error
    if meta.get("kind") != "checkpoint":
        raise ModelFileError(
            f"{path}: expected the checkpoint of a training, got another file of stepvad",
            hint="name another file as the checkpoint",
        )
    return tensors, meta


def _check_identity(own: dict[str, object], meta: modelfile.Metadata, path: Path) -> None:
    """Reject a checkpoint of another run."""
    # another run, or another precision of it: name the first fact that differs
    for key, expected in own.items():
        if meta.get(key) == expected:
            continue
        if key == "precision":
            raise ModelFileError(
                f"{path}: expected a checkpoint of precision {expected}, got {meta.get(key)!s:.20}",
                hint=f"resume with Compute(precision={meta.get(key)!r:.20}), or {START_OVER}",
            )
        raise ModelFileError(
            f"{path}: expected a checkpoint of the same {key}, got another",
            hint=f"resume with the options and poses of the first run, or {START_OVER}",
        )


def _restore(state: TrainingState, torches: dict[str, Tensor], meta: modelfile.Metadata) -> None:
    state.f.load_state_dict(_under("f.", torches))
    state.ema.load_state_dict(_under("ema.", torches))
    state.best_weights = _under("best.", torches) or None
    adam: dict[int, dict[str, Tensor]] = {}
    for name, value in _under("adam.", torches).items():
        number, _, moment = name.partition(".")
        adam.setdefault(int(number), {})[moment] = value
    state.optimiser.load_state_dict({**state.optimiser.state_dict(), "state": adam})
    state.generator.set_state(torches["generator"])
    reached = from_plain(_Reached, meta, "checkpoint")
    state.epoch, state.step, state.misses = reached.epoch, reached.step, reached.misses
    state.best = reached.best


def to_numpy(tensors: dict[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Copies of tensors as arrays."""
    return {name: value.detach().cpu().numpy().copy() for name, value in tensors.items()}


def _identity(state: TrainingState, data: TrainingSet, config: Config) -> dict[str, object]:
    """Facts on which a checkpoint and the run that resumes from it must agree."""
    return {
        "kind": "checkpoint",
        "settings": asdict(config),
        "poses": data.digest,
        "use of validation": state.validated,
        "validation clips": state.rated_by,
        "precision": state.precision,
    }


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def _keep_best(state: TrainingState, quality: float) -> None:
    if math.isnan(quality):
        raise StepvadError(
            f"validation: expected a number after epoch {state.epoch}, got nan",
            hint="validate on clips with both normal and abnormal frames",
        )
    if state.best is None or quality > state.best:
        state.best, state.misses = quality, 0
        state.best_weights = {k: v.clone() for k, v in state.ema.state_dict().items()}
    else:
        state.misses += 1


def _finished(state: TrainingState, data: TrainingSet, config: Config) -> bool:
    """True if all steps are done, and the last epoch is closed: a checkpoint may come before."""
    closed = state.step <= state.epoch * data.steps_per_epoch(config)
    return closed and state.step >= data.n_steps(config)


def _batches_left(
    state: TrainingState, data: TrainingSet, config: Config
) -> Iterator[NDArray[np.int64]]:
    """Rows of the batches from this step to the end of the epoch, in the order set by the seed."""
    order = np.random.default_rng([config.seed, state.epoch]).permutation(data.n_windows)
    done = state.step - state.epoch * data.steps_per_epoch(config)
    left = min(data.steps_per_epoch(config) - done, data.n_steps(config) - state.step)
    for batch in range(done, done + left):
        yield order[batch * config.batch_size : (batch + 1) * config.batch_size]


def torch_device(name: str) -> torch.device:
    """The device of this name, checked: torch can compute on it here."""
    try:
        device = torch.device(name)
        usable = bool(torch.ones(1, device=device).sum().item() == 1)
    except (RuntimeError, AssertionError, NotImplementedError):  # torch raises one or another
        usable = False
    if not usable:
        there = ", ".join(["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))])
        raise ConfigError(
            f"device: expected one that torch can compute on here ({there}), got {name!r}",
            hint="install a torch build and a driver for that device, or use the device cpu",
        )
    return device


def has_bfloat16(device: torch.device) -> bool:
    """True if torch multiplies bfloat16 faster than float32 on a device."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    known: Callable[[], dict[str, bool]] = getattr(torch.cpu, "get_capabilities", dict)
    return device.type == "cpu" and known().get("amx_bf16", False)


T = TypeVar("T")


class InterruptedWorkError(Exception):
    """The caller of the work was interrupted; it sees its own exception, never this one."""


def flushed(work: Callable[[Report], T], report: Report) -> T:
    """Run `work` in a thread that flushes denormals, and so do the helpers that torch gives it.

    The flag is the thread's own and a new thread has it from its parent, so helpers that torch
    started earlier would keep denormals. The report that `work` receives also ends it when the
    caller is interrupted.
    """
    interrupted = threading.Event()

    def report_unless_interrupted(progress: Progress) -> None:
        if interrupted.is_set():
            raise InterruptedWorkError
        report(progress)

    def run() -> T:
        torch.set_flush_denormal(True)
        return work(report_unless_interrupted)

    with ThreadPoolExecutor(1, "flushed") as thread:
        try:
            return thread.submit(run).result()
        except BaseException:
            interrupted.set()
            raise


BFLOAT16_FROM = 128
"""Smallest width at which bfloat16 products are worth their conversions."""
COMPILED_FROM = 250_000
"""Smallest steps times width at which compiling, about 20 s, pays off."""


def fastest_gradient(config: Config, compute: Compute, n_steps: int) -> Gradient:
    """The closed form in the requested precision, compiled if that pays off in `n_steps`.

    Compiled code handles full batches only; a smaller last batch of an epoch runs uncompiled.
    """
    # bfloat16 in the large products alone, compiled where a run is long enough to gain
    reduced = training_precision(config, compute) == "bfloat16"
    plain: Gradient = partial(closed_form, precision=torch.bfloat16 if reduced else None)
    pays_off = n_steps * config.width >= COMPILED_FROM and shutil.which("c++") is not None
    if not (pays_off if compute.compiled is None else compute.compiled):
        return plain
    compiled: Gradient = torch.compile(plain, dynamic=False)

    def gradient(
        f: Energy, z: Tensor, sigmas: Tensor, scale: Tensor, noise: Tensor | None
    ) -> Tensor:
        chosen = compiled if len(z) == config.batch_size else plain
        return chosen(f, z, sigmas, scale, noise)

    return gradient


def training_precision(config: Config, compute: Compute) -> ProductPrecision:
    """Precision of the large products of a training; all else is float32."""
    if compute.precision != "auto":
        return compute.precision
    quick = config.width >= BFLOAT16_FROM and has_bfloat16(torch_device(compute.device))
    return "bfloat16" if quick else "float32"
