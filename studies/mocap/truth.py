"""Ground truth of a motion, determined from its 3-D joints alone.

The rules were written from the motions, before any score was computed. A frame of an abnormal
motion is abnormal if it shows any sign; a frame without signs, like the walk before a jump, stays
normal. Frames with the same signs are cut out of normal motions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from stepvad.model.scoring import true_runs
from studies.mocap.catalogue import MotionKind
from studies.mocap.motions import (
    ANKLE_M,
    ANKLES,
    ELBOWS,
    FPS,
    HEAD,
    HIP_JOINTS,
    HIPS,
    KNEES,
    SHOULDERS,
    WRISTS,
    Float64s,
)

Mask = NDArray[np.bool_]
Sign = Literal[
    "fast", "airborne", "dropping", "low", "on_hands", "inverted", "off_ground", "striking",
    "kicking", "spinning", "arms_up", "t_pose",
]  # fmt: skip

FAST_M_S = 2.1
"""`fast`: the hips travel at this speed; people here walk at up to 1.8."""
AIRBORNE_M = 0.10
"""`airborne`: the lowest joint is this far above the local ground; walking lifts it by 0.05."""
DROPPING_M_S = 1.3
"""`dropping`: the hips sink at this speed; sitting down stays below 1."""
LOW_LEGS = 0.30
"""`low`: the hips are below this many leg lengths from the ground, the height of a stepstool."""
ON_HANDS_M = 0.20
"""`on_hands`: a wrist is this close to the ground."""
INVERTED_LEGS = -0.20
"""`inverted`: height of the head above the hips in leg lengths; negative, so below them."""
OFF_GROUND_M = 0.30
"""`off_ground`: the lower foot is this far above the floor of the motion."""
STRIKING_M_S = 2.3
"""`striking`: a wrist moves at this speed relative to the hips; in walking up to 2."""
KICKING_LEGS, KICKING_M_S = 0.60, 4.5
"""`kicking`: a foot is this many leg lengths up, or this fast; running stays at 0.55."""
SPINNING_RAD_S = 5.0
"""`spinning`: the hips turn at this speed; a sharp turn while walking takes 3."""
ARMS_UP_M = 0.0
"""`arms_up`: both wrists are this far above the shoulders."""
T_POSE_SPAN = 0.9
"""`t_pose`: the wrists are this share of the arms' span apart, at the height of the shoulders."""
T_POSE_M = 0.25
SMOOTH_S, TRAVEL_S = 0.17, 0.25
"""Velocities of joints, and of the body as a whole, are averaged over this time."""
AIR_S = 1.0
"""A longer rise of the lowest joint is ground, not flight."""
MIN_EVENT_S = 0.2
"""Shorter intervals are not events."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Signs of a class, the longest pause within an event, and the margin around it.

    A motion without any of these signs is not of the class, whatever its label says.
    """

    signs: tuple[Sign, ...]
    pause_s: float
    reach_s: float


RULES: Mapping[MotionKind, Rule] = {
    "run": Rule(("fast",), 0.5, 0.0),
    "jump": Rule(("airborne", "dropping"), 0.5, 0.25),
    "fall": Rule(("airborne", "dropping", "low"), 1.0, 0.0),
    "floor": Rule(("low", "on_hands"), 1.0, 0.0),
    "fight": Rule(("striking", "kicking"), 1.5, 0.3),
    "dance": Rule(("spinning", "kicking", "striking", "airborne", "arms_up"), 2.0, 0.2),
    "acrobatics": Rule(("airborne", "low", "inverted", "on_hands", "spinning"), 0.7, 0.2),
    "climb": Rule(("off_ground",), 1.0, 0.2),
    "throw": Rule(("striking",), 1.0, 0.3),
}
NEVER_NORMAL: tuple[Sign, ...] = (
    "fast", "airborne", "dropping", "low", "on_hands", "inverted", "off_ground", "striking",
    "kicking", "spinning",
)  # fmt: skip
"""Signs that no normal motion shows; raised arms alone are normal, except in a dance."""


def signs(joints: Float64s) -> dict[Sign, Mask]:
    """Every sign in every frame of a motion `(n, 15, 3)` at `FPS`, each `(n,)`.

    The floor is at z = 0; the ground under a person is where the lowest joint stays for long.
    """
    lowest = joints[..., 2].min(axis=1)
    ground = ndimage.grey_opening(lowest, (_frames(AIR_S),), mode="nearest")
    leg = _length(joints, HIP_JOINTS, KNEES) + _length(joints, KNEES, ANKLES)
    velocity = _averaged(np.gradient(joints, 1 / FPS, axis=0), SMOOTH_S)
    relative = np.linalg.norm(velocity - velocity[:, [HIPS]], axis=2)
    travel = _averaged(velocity[:, HIPS, :2], TRAVEL_S)
    height = joints[..., 2] - ground[:, None]
    return {
        "fast": np.linalg.norm(travel, axis=1) > FAST_M_S,
        "airborne": lowest - ground > AIRBORNE_M,
        "dropping": -velocity[:, HIPS, 2] > DROPPING_M_S,
        "low": height[:, HIPS] < LOW_LEGS * leg,
        "on_hands": height[:, WRISTS].min(axis=1) < ON_HANDS_M,
        "inverted": joints[:, HEAD, 2] - joints[:, HIPS, 2] < INVERTED_LEGS * leg,
        "off_ground": joints[:, ANKLES, 2].min(axis=1) - ANKLE_M > OFF_GROUND_M,
        "striking": relative[:, WRISTS].max(axis=1) > STRIKING_M_S,
        "kicking": (height[:, ANKLES].max(axis=1) > KICKING_LEGS * leg)
        | (relative[:, ANKLES].max(axis=1) > KICKING_M_S),
        "spinning": _turn(joints) > SPINNING_RAD_S,
        "arms_up": (joints[:, WRISTS, 2] - joints[:, SHOULDERS, 2]).min(axis=1) > ARMS_UP_M,
        "t_pose": _t_pose(joints),
    }


def abnormal(joints: Float64s, kind: MotionKind) -> Mask:
    """Mask `(n,)` of the abnormal frames of a motion, by the rule of its class."""
    rule, shown = RULES[kind], signs(joints)
    if not any(shown[sign].any() for sign in rule.signs):
        return np.zeros(len(joints), dtype=np.bool_)
    event = np.logical_or.reduce([shown[sign] for sign in {*NEVER_NORMAL, *rule.signs}])
    event = _reach(_without_pauses(event, rule.pause_s), rule.reach_s)
    for first, end in true_runs(event):
        if end - first < _frames(MIN_EVENT_S):
            event[first:end] = False
    return event


def ordinary(joints: Float64s) -> Mask:
    """Mask `(n,)` of the frames that show no sign and no calibration pose."""
    shown = signs(joints)
    return ~np.logical_or.reduce([shown[sign] for sign in (*NEVER_NORMAL, "t_pose")])


def _without_pauses(event: Mask, pause_s: float) -> Mask:
    joined = event.copy()
    found = true_runs(event)
    for (_, end), (first, _) in pairwise(found):
        if first - end <= pause_s * FPS:
            joined[end:first] = True
    return joined


def _reach(event: Mask, reach_s: float) -> Mask:
    reach = round(reach_s * FPS)
    return ndimage.binary_dilation(event, iterations=reach) if reach and event.any() else event


def _turn(joints: Float64s) -> Float64s:
    """Turning speed of the hips about the vertical, `(n,)` in radians per second."""
    across = joints[:, HIP_JOINTS[0]] - joints[:, HIP_JOINTS[1]]
    heading = np.unwrap(np.arctan2(across[:, 1], across[:, 0]))
    return np.abs(_averaged(np.gradient(heading, 1 / FPS), TRAVEL_S))


def _t_pose(joints: Float64s) -> Mask:
    arms = _length(joints, SHOULDERS, ELBOWS) + _length(joints, ELBOWS, WRISTS)
    span = 2 * arms + _length(joints, SHOULDERS[:1], SHOULDERS[1:])
    apart = np.linalg.norm(joints[:, WRISTS[0]] - joints[:, WRISTS[1]], axis=1)
    level = np.abs(joints[:, WRISTS, 2] - joints[:, SHOULDERS, 2]).max(axis=1) < T_POSE_M
    return (apart > T_POSE_SPAN * span) & level


def _length(joints: Float64s, tops: list[int], ends: list[int]) -> float:
    """Median length of a bone, over both sides if there are two."""
    return float(np.median(np.linalg.norm(joints[:, tops] - joints[:, ends], axis=2)))


def _averaged(values: Float64s, seconds: float) -> Float64s:
    return ndimage.uniform_filter1d(values, _frames(seconds), axis=0, mode="nearest")


def _frames(seconds: float) -> int:
    """An odd number of frames, so that filters are centred."""
    return 2 * round(seconds * FPS / 2) + 1
