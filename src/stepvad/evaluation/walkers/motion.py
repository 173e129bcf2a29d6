"""Motion of a person in every frame of a clip: position, speed, and any event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.evaluation.walkers.camera import GroundCamera
from stepvad.evaluation.walkers.noise import drift, moving_mean

WalkerEvent = Literal["run", "fall", "cycle", "backwards", "crouch", "fight"]
Floats = NDArray[np.float64]

FPS = 25.0
RUNNING = 2.2
"""A person runs at or above this speed, in m/s."""
BACKWARDS = -0.3
"""A person walks backwards at or below this speed, in m/s."""
ACTING = 0.3
"""A person crouches or fights at or above this level."""


@dataclass(frozen=True, slots=True)
class WalkerMotion:
    """Motion of one person in n frames, all `(n,)` except `position (n, 2)` in metres.

    `heading` is the facing direction in radians; `speed` is in m/s along it, negative backwards;
    `level` ranges from 0 (upright, as usual) to 1 (lying, crouched, fighting, on a bicycle).
    """

    position: Floats
    heading: Floats
    speed: Floats
    event: WalkerEvent | None
    level: Floats
    present: NDArray[np.bool_]

    @property
    def abnormal(self) -> NDArray[np.bool_]:
        """Mask `(n,)` of the frames in which the person performs `event`."""
        match self.event:
            case "run":
                return self.speed >= RUNNING
            case "backwards":
                return self.speed <= BACKWARDS
            case "fall":
                return self.level > 0
            case _:
                return self.level >= ACTING

    def level_of(self, event: WalkerEvent) -> Floats:
        """The level of one event; 0 for people with another event or none."""
        return self.level if self.event == event else np.zeros_like(self.level)


def move(
    rng: np.random.Generator,
    camera: GroundCamera,
    n: int,
    segment: range,
    event: WalkerEvent | None,
) -> WalkerMotion:
    """A person who enters and leaves; the event is in the middle of the stay, within `segment`."""
    middle = segment.start + int(len(segment) * rng.uniform(0.15, 0.85))
    born, gone = middle - rng.uniform(2, 12) * FPS, middle + rng.uniform(2, 12) * FPS
    if event == "fall":
        gone = middle + min(rng.uniform(2.5, 4.5) * FPS, 0.4 * len(segment))
    elif event == "cycle":  # a bicycle passes by
        born, gone = middle - rng.uniform(1, 3) * FPS, middle + rng.uniform(1, 3) * FPS
    reach = round(min(rng.uniform(1.0, 2.5) * FPS, 0.3 * len(segment)))
    speed, level = _act(rng, n, middle, reach, event)
    speed = moving_mean(speed, round(0.5 * FPS))
    lying = level > 0 if event == "fall" else np.zeros(n, dtype=np.bool_)
    turn = drift(rng, n, 1, 20)[:, 0] * np.minimum(0.03 * np.abs(speed), 0.04) * ~lying
    heading = rng.uniform(0, 2 * np.pi) + np.cumsum(turn) - np.sum(turn[: middle + 1])
    step = speed[:, None] / FPS * np.stack([np.cos(heading), np.sin(heading)], axis=1)
    path = np.cumsum(step, axis=0)
    present = (np.arange(n) >= born) & (np.arange(n) < gone)
    position = path - path[middle] + camera.ground_in_view(rng)
    return WalkerMotion(position, heading, speed, event, level, present)


def _act(
    rng: np.random.Generator, n: int, middle: int, reach: int, event: WalkerEvent | None
) -> tuple[Floats, Floats]:
    """Unsmoothed speed `(n,)`, and level `(n,)`."""
    speed, level = _walk_and_stand(rng, n), np.zeros(n)
    during = slice(max(middle - reach, 0), middle + reach)
    match event:
        case "run":
            speed[during] = rng.uniform(3.0, 4.5)
        case "backwards":
            speed[during] = -rng.uniform(0.8, 1.3)
        case "fall":
            speed[middle:] = 0.0
            level = np.clip((np.arange(n) - middle) / (rng.uniform(0.6, 1.0) * FPS), 0, 1) ** 2
        case "cycle":
            speed[:], level[:] = rng.uniform(2.5, 4.5), 1.0
        case "crouch" | "fight":
            speed[during], level[during] = rng.uniform(0, 0.5), 1.0
            level = moving_mean(level, round(0.7 * FPS))
        case None:
            pass
    return speed, level


def _walk_and_stand(rng: np.random.Generator, n: int) -> Floats:
    """Speed `(n,)` of a person who alternately walks and stands for some seconds."""
    pace, walking, pieces = rng.uniform(1.0, 1.6), bool(rng.random() < 0.75), [np.empty(0)]
    while sum(map(len, pieces)) < n:
        duration_s = rng.uniform(3, 8) if walking else rng.uniform(1, 4)
        pieces.append(np.full(round(duration_s * FPS), pace if walking else 0.0))
        walking = not walking
    return np.concatenate(pieces)[:n]
