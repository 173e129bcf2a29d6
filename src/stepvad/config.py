"""Settings of a model and its training, with the paper's defaults (Sec. 4.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args

from stepvad.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ViewKind = Literal["pose", "motion", "place"]
"""What a window shows: the paper's pose, the motion of the body, or its place in the picture."""
ScoredBy = Literal["energy", "usual"]
"""What a view scores by: the paper's energy, or the distance to the nearest usual motion."""
Joints = Literal["body", "middle", "weighed"]
"""Where joints go that were not found, and those that are unsure."""
Projection = Literal["pca", "raw"]
Network = Literal["modulated", "vanilla"]
DistanceMethod = Literal["knn", "mahalanobis"]
Method = Literal["step", "usual", "raw-modulated", "raw", "vanilla", DistanceMethod]
"""STEP, the nearest usual motion, and the methods they are compared with."""
Engine = Literal["numpy", "onnxruntime", "openvino", "openvino-bfloat16"]
Runtime = Literal["auto", "fastest", Engine]
"""The engine that computes energies, or the rule that picks one."""
ProductPrecision = Literal["float32", "bfloat16"]
Precision = Literal["auto", ProductPrecision]
PoseRuntime = Literal["auto", "onnxruntime", "openvino"]
"""The engine of the networks that find people, or the rule that picks one."""
PoseDevice = Literal["cpu", "cuda", "tensorrt", "coreml", "openvino-gpu"]
Aggregation = Literal["max", "sum", "top2", "top3"] | int

LONG_S, SHORT_S = 1.0, 1 / 3
"""Seconds of a long and a short view."""
LONG, SHORT = 24, 8
"""Poses that they have at least: the noise of fewer does not average out."""
HALF = 0.5
"""Whitening of the poses whose distances are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Variants of ablations and of the authors' code; the defaults are what the paper says.

    Examples:
        >>> Config(reference=Reference(whitening=0.0)).reference.whitening
        0.0
    """

    projection: Projection = "pca"
    """How a window is projected to π(x); `raw` uses its coordinates unchanged (MULDE)."""
    whitening: float = 1.0
    """How much of it is done (Eq. 6): 0 is none, 0.5 divides by the root of the deviation alone."""
    spread_floor: float = 0.01
    """Lower bound on a window's spread in y, as a fraction of its spread in x."""
    smooth: float = 0.0
    """Share of the past in the running mean of a window's shapes; 0 takes poses as they are."""
    drop_last_window: bool = False
    """Drop the last window of every track, as the reference loaders do."""
    block_jitter: float = 0.0
    """Gaussian noise added before every block in training; the reference uses 0.1."""

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        _check_types(self)
        _check(self, "whitening", 0 <= self.whitening <= 1, "at least 0 and at most 1")
        _check(self, "smooth", 0 <= self.smooth < 1, "at least 0 and below 1")
        for name in ("spread_floor", "block_jitter"):
            _check(self, name, 0 <= getattr(self, name) < math.inf, "zero or positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of one view: windows, PC-space, energy, noise scales, training and score.

    The defaults are the paper's (Sec. 4.1, Implementation Details). A model file carries them.

    Examples:
        >>> Config(T=8, epochs=50).sigmas.round(2).tolist()
        [0.1, 0.13, 0.17, 0.22, 0.28, 0.36, 0.46, 0.6, 0.77, 1.0]
    """

    # Windows (Sec. 3.1)
    T: int = 12
    """Frames in a window."""
    view: ViewKind = "pose"
    """What a window shows: the paper's `pose`, or what it leaves out, `motion` and `place`."""
    scored_by: ScoredBy = "energy"
    """The paper's `energy`, or the distance to the nearest `usual` motion, which needs no torch."""
    least: int | None = None
    """Poses from which on a young track has windows, its first one repeated; None waits for T."""
    clock: bool = False
    """Cut windows by the clock: footage of another frame rate is resampled to the model's."""
    fps: float | None = None
    """Frames per second of a window; None takes the rate of the training clips."""
    split_jumps: bool = False
    """Begin a track again where its body jumps: it went over to somebody else."""
    joints: Joints = "body"
    """Place missing joints where a body has them, or at the mean of the others (`middle`); with
    `weighed`, also move found ones towards the body, the more the less sure they are."""

    # Projection (Sec. 3.2, Eq. 6)
    K: int = 48
    """Principal components kept; a fit on raw coordinates keeps all 2VT."""

    # Network (Sec. 3.4, Fig. 3)
    network: Network = "modulated"
    """`modulated` feeds σ to every block; `vanilla` is a plain MLP with σ as an input."""
    width: int = 1024
    """Hidden units of every block."""
    blocks: int = 4
    """Residual blocks."""
    sigma_width: int = 256
    """Hidden units of a block's σ branch."""

    # Noise scales {σ_i} (Sec. 3.3)
    L: int = 10
    """Noise scales."""
    sigma_low: float = 0.1
    """Smallest noise scale."""
    sigma_high: float = 1.0
    """Largest noise scale."""

    # Training (Sec. 4.1)
    epochs: int = 400
    """Passes over the training windows."""
    max_steps: int | None = None
    """Upper limit on training steps, regardless of `epochs`; None trains all epochs."""
    batch_size: int = 1024
    """Windows per step."""
    learning_rate: float = 2e-4
    """Peak rate: 2e-4 on ShanghaiTech and MSAD, 5e-4 on UBnormal."""
    final_rate: float = 0.5
    """Fraction of the peak rate at the end of the cosine."""
    beta_1: float = 0.5
    """AdamW's decay of the gradient's mean."""
    beta_2: float = 0.9
    """AdamW's decay of the gradient's square."""
    weight_decay: float = 1e-2
    """AdamW's weight decay."""
    ema_decay: float = 0.999
    """Decay of the averaged weights, which are used for scoring."""
    ema_warmup: bool = False
    """Average with decay min(ema_decay, (1 + t) / (10 + t)), which lags less in short runs."""
    patience: int | None = None
    """Validations without improvement before training stops early; None trains to the end."""
    seed: int = 0
    """Seed of weights, batches and noise."""

    # Score (Eq. 7, Eq. 8)
    confidence: bool = True
    """Weight loss and score by the pose confidence c(x)."""
    aggregation: Aggregation = "max"
    """How the L standardised energies become one score; a number picks one scale."""

    # Everything that only a study changes
    reference: Reference = field(default_factory=Reference)
    """Variants of ablations and of the authors' code."""

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        _check_types(self)
        for name in ("T", "K", "width", "blocks", "sigma_width", "L", "epochs", "batch_size"):
            _check(self, name, getattr(self, name) >= 1, "at least 1")
        for name in ("learning_rate", "sigma_low"):
            _check(self, name, 0 < getattr(self, name) < math.inf, "a positive number")
        for name in ("beta_1", "beta_2", "ema_decay"):
            _check(self, name, 0 <= getattr(self, name) < 1, "at least 0 and below 1")
        for name in ("patience", "max_steps"):
            value = getattr(self, name)
            _check(self, name, value is None or value >= 1, "at least 1, or None")
        _check(self, "least", self.least is None or 1 <= self.least <= self.T, "1 to T, or None")
        _check(self, "fps", self.fps is None or 0 < self.fps < math.inf, "a positive rate, or None")
        _check(self, "weight_decay", 0 <= self.weight_decay < math.inf, "zero or positive")
        _check(self, "final_rate", 0 < self.final_rate <= 1, "above 0 and at most 1")
        _check(self, "seed", 0 <= self.seed < 2**63, "from 0 to 2**63 - 1")
        _check(
            self,
            "sigma_high",
            self.sigma_low < self.sigma_high < math.inf
            or (self.L == 1 and self.sigma_low == self.sigma_high),
            f"above sigma_low = {self.sigma_low}",
        )
        # the sum, the mean of so many scales, or the number of one
        wanted = {"max": 1, "sum": 1, "top2": 2, "top3": 3}.get(str(self.aggregation), math.inf)
        _check(
            self,
            "aggregation",
            wanted <= self.L
            or (isinstance(self.aggregation, int) and 0 <= self.aggregation < self.L),
            f"'max', 'sum', 'top2', 'top3' or a scale from 0 to {self.L - 1}",
        )

    @classmethod
    def short(cls) -> Config:
        """The paper's windows with a training of minutes on two cores, to compare methods."""
        return cls(max_steps=500, learning_rate=1e-3, width=512, ema_warmup=True)

    @classmethod
    def footage(cls) -> Config:
        """Settings for a user's own footage: as short a training, and windows by the clock."""
        return replace(cls.short(), clock=True)

    @classmethod
    def usual(
        cls,
        fps: float,
        kinds: Sequence[ViewKind] = ("pose", "motion"),
        *,
        clock: bool = True,
        seed: int = 0,
    ) -> tuple[Config, ...]:
        """Settings of the views that are scored by their nearest usual motion.

        The pose over a second and over a third of one, the motion over a second and, where the
        camera never moves, the place over a third. At low frame rates they last longer, because
        fewer than 24 and 8 poses are too noisy. Poses come first, the longest view above all.
        """
        if "pose" not in kinds or not {*kinds} <= {*get_args(ViewKind)}:
            raise ConfigError(
                f"views: expected pose, optionally with motion or place, got {', '.join(kinds)}"
            )
        long, short = max(round(LONG_S * fps), LONG), max(round(SHORT_S * fps), SHORT)
        base = cls(
            fps=fps,
            clock=clock,
            seed=seed,
            scored_by="usual",
            joints="weighed",
            confidence=False,
            split_jumps=True,
        )
        pose = replace(base, reference=Reference(whitening=HALF))
        views = [replace(pose, T=long, least=short), replace(pose, T=short, least=short // 4)]
        if "motion" in kinds:
            views.append(replace(base, view="motion", T=long, least=short))
        if "place" in kinds:
            views.append(replace(base, view="place", T=short))
        return tuple(views)

    @property
    def sigmas(self) -> NDArray[np.float64]:
        """The noise scales {σ_i}, `(L,)`, a geometric sequence from low to high (Sec. 4.1)."""
        import numpy as np  # imported here to keep importing the settings fast

        return np.geomspace(self.sigma_low, self.sigma_high, self.L)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Config:
        """The settings that the plain values of `asdict` describe, all of them, checked."""
        reference = facts["reference"]
        for kind, given in ((cls, facts), (Reference, reference)):
            if missing := {one.name for one in fields(kind)} - given.keys():
                raise KeyError(min(missing))
        return cls(**{**facts, "reference": Reference(**reference)})

    @property
    def shortest(self) -> int:
        """Poses from which on a track is scored: T, or the fewest of a young track."""
        return self.least or self.T

    @property
    def view_name(self) -> str:
        """Name of what a window shows, and how long it lasts."""
        return f"{self.view} over {self.T} frames"


def check_views(configs: Sequence[Config]) -> None:
    """Reject views that make no detector."""
    kinds = [config.view for config in configs]
    usual = [config.scored_by == "usual" for config in configs]
    one_energy = kinds == ["pose"] and not any(usual)
    several = kinds[:1] == ["pose"] and all(usual) and len(kinds) > 1
    if not (one_energy or (several and max(kinds.count("motion"), kinds.count("place")) <= 1)):
        raise ConfigError(
            "views: expected one pose, scored by the paper's energy, or those of Config.usual, "
            f"got {', '.join(kinds) or 'none'}"
        )
    if max(config.T for config in configs) > configs[0].T:
        raise ConfigError(f"views: expected the longest first, got T = {configs[0].T}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Options of how training runs; they affect only its speed and the last digits of its result.

    Examples:
        >>> Compute(device="cpu", precision="float32").runtime
        'auto'
    """

    device: str = "cpu"
    """Torch device of the training: `cpu`, `cuda`, `cuda:1`."""
    precision: Precision = "auto"
    """Precision of large products; `auto` uses bfloat16 where the hardware multiplies it faster."""
    compiled: bool | None = None
    """Whether torch compiles the training step; None compiles if the run is long enough."""
    runtime: Runtime = "auto"
    """Engine for the energies behind Ē_i and Var(E_i), and for the fitted detector."""

    def __post_init__(self) -> None:
        """Reject an unknown precision."""
        if self.precision not in get_args(Precision):
            expected = " or ".join(map(repr, get_args(Precision)))
            raise ConfigError(f"precision: expected {expected}, got {self.precision!r}")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file that keeps the state of a training as it goes.

    Examples:
        >>> Checkpoint(Path("model.checkpoint"), resume=True).resume
        True
    """

    path: Path
    resume: bool = False
    """Go on from the state in the file, which must be of the same settings and clips."""


KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "int | None": (int, NoneType),
    "float | None": (float, int, NoneType),
    "Aggregation": (str, int),
    "Reference": (Reference,),
}
"""Types that a setting accepts, by how its field is annotated."""
CHOICES = {
    "ViewKind": get_args(ViewKind),
    "ScoredBy": get_args(ScoredBy),
    "Joints": get_args(Joints),
    "Projection": get_args(Projection),
    "Network": get_args(Network),
}
"""Values that a setting accepts, by how its field is annotated."""


def _check_types(settings: Config | Reference) -> None:
    """Reject settings of another type, which files may hold; whole numbers serve as real ones."""
    for one in fields(settings):
        name, kind, value = one.name, str(one.type), getattr(settings, one.name)
        if kind in CHOICES:
            words = " or ".join(map(repr, CHOICES[kind]))
            _check(settings, name, value in CHOICES[kind], words)
            continue
        known = ["None" if type_ is NoneType else type_.__name__ for type_ in KINDS[kind]]
        _check(settings, name, type(value) in KINDS[kind], " or ".join(known))
        if float in KINDS[kind] and value is not None:
            try:
                object.__setattr__(settings, name, float(value))
            except OverflowError as error:
                message = f"{name}: expected a number below 1e308, got a larger one"
                raise ConfigError(message) from error


def _check(settings: Config | Reference, name: str, holds: bool, expected: str) -> None:
    if not holds:
        raise ConfigError(f"{name}: expected {expected}, got {getattr(settings, name)!r}")
