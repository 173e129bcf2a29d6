"""Settings of a model and its training, with the paper's defaults (Sec. 4.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args

from stepvad.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

View = Literal["pose", "motion", "place"]
"""What a window shows: the paper's pose, the motion of the body, or its place in the picture."""
Missing = Literal["body", "middle"]
"""Where a joint goes that was not found: where the others say, or in their middle."""
Projection = Literal["pca", "raw"]
Network = Literal["modulated", "vanilla"]
DistanceMethod = Literal["knn", "mahalanobis"]
Method = Literal["step", "raw-modulated", "raw", "vanilla", DistanceMethod]
"""STEP and the methods it is compared with."""
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
NEW_PLACE = -math.log(0.01)
"""-log p of a place where nobody was: that of the rarest hundredth."""
VIEW_WIDTH, SMALL_WIDTH = 256, 64
"""Hidden units for one pose of several, and for motion and place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of one model: windows, PC-space, energy, noise scales, training and score.

    The defaults are the paper's (Sec. 4.1, Implementation Details). A model file carries them.
    """

    T: int = 12
    """Frames in a window."""
    view: View = "pose"
    """What a window shows: the paper's `pose`, or what it leaves out, `motion` and `place`."""
    share: float = 1.0
    """Weight of this view among the views of a detector."""
    cap: float | None = None
    """Largest -log p that this view may say; None for no limit."""
    least: int | None = None
    """Poses from which on a young track is seen, its first one repeated; None waits for T."""
    views: tuple[Config, ...] = ()
    """Settings of each view of a detector with several; T is then the longest of theirs."""
    drop_last_window: bool = False
    """Drop the last window of every track, as the reference loaders do."""
    clock: bool = False
    """Cut windows by the clock: footage of another frame rate is resampled to the model's."""
    split_jumps: bool = False
    """Begin a track again where its body jumps: it went over to somebody else."""
    smooth: float = 0.0
    """Share of the past in the running mean of a window's shapes; 0 takes poses as they are."""
    fps: float | None = None
    """Frames per second of a window; None takes the rate of the training clips."""
    missing: Missing = "body"
    """Place missing joints by the others with a model of the body, or at their mean (`middle`)."""
    weigh_joints: bool = False
    """Move joints towards where the body has them, the more the less sure they are."""
    noise: tuple[float, ...] = ()
    """Spread of joints by confidence, from unsure to sure, in extents of the body; measured on the
    training clips if empty."""
    pace: tuple[float, ...] = ()
    """How fast people move at each place (`windows.pace`), which a motion is told in; measured on
    the training clips if empty."""
    spread_floor: float = 0.01
    """Lower bound on a window's spread in y, as a fraction of its spread in x."""

    projection: Projection = "pca"
    """How a window is projected to π(x); `raw` uses its coordinates unchanged (MULDE)."""
    K: int = 48
    """Principal components kept (Eq. 6); a fit on raw coordinates keeps all 2VT."""
    whiten: bool = True
    """Divide each component by its standard deviation (Eq. 6)."""
    whitening: float = 1.0
    """How much of it is done: 0.5 divides by the square root of the deviation alone."""

    network: Network = "modulated"
    """`modulated` feeds σ to every block (Fig. 3); `vanilla` is a plain MLP with σ as an input."""
    width: int = 1024
    """Hidden units of every block (Fig. 3)."""
    blocks: int = 4
    """Residual blocks (Fig. 3)."""
    sigma_width: int = 256
    """Hidden units of a block's σ branch (Fig. 3)."""
    block_jitter: float = 0.0
    """Gaussian noise added before every block in training; the reference uses 0.1."""

    L: int = 10
    """Noise scales."""
    sigma_low: float = 0.1
    """Smallest noise scale."""
    sigma_high: float = 1.0
    """Largest noise scale."""

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

    confidence: bool = True
    """Weight loss and score by the pose confidence c(x) (Eq. 7, Eq. 8)."""
    aggregation: Aggregation = "max"
    """How the L standardised energies become one score (Eq. 8); a number picks one scale."""

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        for name, kinds in TYPES.items():
            value = getattr(self, name)
            if type(value) not in kinds:
                words = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
                raise ConfigError(f"{name}: expected {words}, got {value!r}")
            if float in kinds and value is not None:
                object.__setattr__(self, name, _as_float(name, value))
        for name in COUNTS:
            self._check(name, getattr(self, name) >= 1, "at least 1")
        for name in ("learning_rate", "sigma_low", "share"):
            self._check(name, 0 < getattr(self, name) < math.inf, "a positive number")
        for name in ("beta_1", "beta_2", "ema_decay", "smooth"):
            self._check(name, 0 <= getattr(self, name) < 1, "at least 0 and below 1")
        for name in ("spread_floor", "block_jitter", "weight_decay"):
            self._check(name, 0 <= getattr(self, name) < math.inf, "zero or positive")
        self._check(
            "views",
            all(isinstance(view, Config) and not view.views for view in self.views)
            and max((view.T for view in self.views), default=self.T) == self.T,
            f"settings without views of their own, the longest of T = {self.T} frames",
        )
        self._check(
            "noise",
            all(type(spread) is float and 0 <= spread < math.inf for spread in self.noise)
            and (self.weigh_joints or not self.noise),
            "spreads of joints, if they are weighed",
        )
        self._check(
            "pace",
            all(type(number) is float and math.isfinite(number) for number in self.pace)
            and (self.view == "motion" or not self.pace),
            "finite numbers, for a motion",
        )
        self._check("cap", self.cap is None or 0 < self.cap < math.inf, "above 0, or None")
        self._check("least", self.least is None or 1 <= self.least <= self.T, "1 to T, or None")
        self._check("fps", self.fps is None or 0 < self.fps < math.inf, "a positive rate, or None")
        self._check("whitening", 0 < self.whitening <= 1, "above 0 and at most 1")
        self._check("final_rate", 0 < self.final_rate <= 1, "above 0 and at most 1")
        for name in ("patience", "max_steps"):
            value = getattr(self, name)
            self._check(name, value is None or value >= 1, "at least 1, or None")
        self._check("seed", 0 <= self.seed < 2**63, "from 0 to 2**63 - 1")
        for name, choices in CHOICES.items():
            self._check(name, getattr(self, name) in choices, " or ".join(map(repr, choices)))
        self._check(
            "sigma_high",
            self.sigma_low < self.sigma_high < math.inf
            or (self.L == 1 and self.sigma_low == self.sigma_high),
            f"above sigma_low = {self.sigma_low}",
        )
        self._check(
            "aggregation",
            self.aggregation in ("max", "sum")
            or (self.aggregation == "top2" and self.L >= 2)
            or (self.aggregation == "top3" and self.L >= 3)
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

    def with_views(self, kinds: Sequence[View], fps: float) -> Config:
        """Settings of several views, joined: each kind over a second and over a third of one.

        At low frame rates they last longer, because fewer than 24 and 8 poses are too noisy.

        The place is taken over a third of a second alone, and how unusual it can be is limited: one
        that nobody was at is as new as any other. Joints are weighed by their own noise,
        windows no more by their confidence. Poses come first.
        """
        if "pose" not in kinds or not {*kinds} <= {*get_args(View)}:
            raise ConfigError(
                f"views: expected pose, optionally with motion or place, got {', '.join(kinds)}"
            )
        long, short = max(round(LONG_S * fps), LONG), max(round(SHORT_S * fps), SHORT)
        base = replace(
            self, views=(), share=0.5, weigh_joints=True, confidence=False, split_jumps=True
        )
        small = replace(base, width=SMALL_WIDTH)
        base = replace(base, width=min(self.width, VIEW_WIDTH))
        views = [replace(base, T=long, least=short), replace(base, T=short, least=short // 4)]
        if "motion" in kinds:
            small = replace(small, view="motion")
            views += [replace(small, T=long, least=short)]
            views += [replace(small, T=short, least=short // 2)]
        if "place" in kinds:
            views.append(replace(small, view="place", T=short, share=1.0, cap=NEW_PLACE))
        return replace(views[0], views=tuple(views))

    @property
    def sigmas(self) -> NDArray[np.float64]:
        """The noise scales {σ_i}, `(L,)`, a geometric sequence from low to high (Sec. 4.1)."""
        import numpy as np  # imported here to keep importing the settings fast

        return np.geomspace(self.sigma_low, self.sigma_high, self.L)

    def facts(self) -> dict[str, object]:
        """Every setting as a value of JSON."""
        views = [view.facts() for view in self.views]
        return {**asdict(self), "views": views, "noise": [*self.noise], "pace": [*self.pace]}

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Config:
        """The settings that `facts` describe, all of them, checked."""
        if missing := TYPES.keys() - facts.keys():
            raise KeyError(min(missing))
        views = tuple(cls.of_facts(view) for view in facts["views"])
        noise, pace = tuple(facts["noise"]), tuple(facts["pace"])
        return cls(**{**facts, "views": views, "noise": noise, "pace": pace})

    @property
    def whitened(self) -> float:
        """How much of the whitening is done; 0 for none."""
        return self.whitening if self.whiten else 0.0

    @property
    def shortest(self) -> int:
        """Poses from which on a track is scored: T, or the fewest that a view needs."""
        return min((view.shortest for view in self.views), default=self.least or self.T)

    @property
    def view_name(self) -> str:
        """What a window shows, and how long it lasts."""
        return f"{self.view} over {self.T} frames"

    @property
    def columns(self) -> int:
        """Numbers behind a window's score: one per noise scale, or one per view."""
        return len(self.views) or self.L

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ConfigError(f"{name}: expected {expected}, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """How training runs; affects only its speed and the last digits of its result."""

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


TYPES: dict[str, tuple[type, ...]] = {
    field.name: {
        "int": (int,),
        "float": (float, int),
        "bool": (bool,),
        "int | None": (int, NoneType),
        "float | None": (float, int, NoneType),
        "View": (str,),
        "Missing": (str,),
        "tuple[Config, ...]": (tuple,),
        "tuple[float, ...]": (tuple,),
        "Projection": (str,),
        "Network": (str,),
        "Aggregation": (str, int),
    }[str(field.type)]
    for field in fields(Config)
}
"""Accepted types of each setting; checked because settings are also read from files."""
COUNTS = (
    *("T", "K", "width", "blocks"),
    *("sigma_width", "L", "epochs", "batch_size"),
)
"""Settings that are at least 1."""
CHOICES = {
    "view": get_args(View),
    "missing": get_args(Missing),
    "projection": get_args(Projection),
    "network": get_args(Network),
}
"""Settings with a fixed set of values."""


def _as_float(name: str, value: float) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise ConfigError(f"{name}: expected a number below 1e308, got a larger one") from error
