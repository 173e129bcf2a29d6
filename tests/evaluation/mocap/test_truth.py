"""The rules see what hand-made motions do, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from stepvad.evaluation.mocap import truth
from stepvad.evaluation.mocap.catalogue import KINDS
from stepvad.evaluation.mocap.motions import FPS, HIP_JOINTS
from stepvad.evaluation.mocap.truth import Sign
from stepvad.model.scoring import true_runs
from tests.evaluation.mocap.people import (
    Floats,
    index,
    jumping,
    lying_down,
    punching,
    standing,
    walking,
)


def shown(joints: Floats) -> set[Sign]:
    return {sign for sign, frames in truth.signs(joints).items() if frames.any()}


def test_walking_and_standing_show_no_sign() -> None:
    assert shown(walking()) == set()
    assert shown(standing()) == set()
    assert truth.ordinary(walking()).all()


@pytest.mark.parametrize("floor_m", [0.0, 0.25])
def test_steps_up_and_down_are_no_flight(floor_m: float) -> None:
    joints = walking(300)
    joints[100:200, :, 2] += floor_m  # walks on a step for three seconds
    assert not truth.signs(joints)["airborne"].any()


def test_a_jump_is_airborne_while_the_feet_are_up_and_normal_before() -> None:
    mask = truth.abnormal(jumping(at=75, height=0.4), "jump")
    half_flight = np.sqrt(2 * 0.4 / 9.81) * FPS
    reach = 0.25 * FPS
    frames = np.flatnonzero(mask)
    assert frames[0] == pytest.approx(75 - half_flight - reach, abs=3)
    assert frames[-1] == pytest.approx(75 + half_flight + reach, abs=3)
    assert len(true_runs(mask)) == 1


def test_a_hop_lower_than_the_threshold_is_normal() -> None:
    assert not truth.abnormal(jumping(height=0.08), "jump").any()


def test_speed_alone_makes_a_run() -> None:
    assert truth.abnormal(walking(90, truth.FAST_M_S + 0.2), "run").all()
    assert not truth.abnormal(walking(90, truth.FAST_M_S - 0.2), "run").any()


def test_a_run_up_stays_normal() -> None:
    slow, fast = walking(90, 1.2), walking(90, 3.5)
    fast[..., 0] += slow[-1, index("Hips"), 0]
    mask = truth.abnormal(np.concatenate([slow, fast]), "run")
    assert not mask[:80].any()
    assert mask[100:].all()


def test_a_fall_is_abnormal_until_the_end() -> None:
    mask = truth.abnormal(lying_down(at=75), "fall")
    assert not mask[:70].any()
    assert mask[90:].all()
    assert "low" in shown(lying_down())


def test_a_punch_is_a_strike() -> None:
    mask = truth.abnormal(punching(at=75), "fight")
    assert mask[75]
    assert not mask[:50].any()
    assert not mask[100:].any()


def test_a_raised_foot_is_a_kick() -> None:
    joints = standing()
    joints[40:60, index("LeftFoot"), 2] += 0.6
    assert truth.abnormal(joints, "fight")[40:60].all()


def test_a_spin_is_told_by_the_hips() -> None:
    joints = standing()
    angle = np.clip(np.arange(90) - 30, 0, 30) / FPS * 8.0
    for side, sign in zip(HIP_JOINTS, (1, -1), strict=True):
        joints[:, side, 0] = -sign * 0.09 * np.sin(angle)
        joints[:, side, 1] = sign * 0.09 * np.cos(angle)
    spinning = truth.signs(joints)["spinning"]
    assert spinning[38:52].all()
    assert not spinning[:20].any()


def test_standing_on_something_is_off_the_ground() -> None:
    joints = standing(150)
    joints[60:, :, 2] += 0.5
    mask = truth.abnormal(joints, "climb")
    assert not mask[:50].any()
    assert mask[60:].all()


def test_raised_arms_are_normal_but_for_a_dance() -> None:
    joints = standing()
    for side in ("Left", "Right"):
        joints[:, index(f"{side}Hand"), 2] = 1.6
    assert truth.ordinary(joints).all()
    assert truth.abnormal(joints, "dance").all()
    assert not truth.abnormal(joints, "fight").any()


def test_a_pose_of_calibration_is_not_normal() -> None:
    joints = standing()
    for side, sign in (("Left", 1), ("Right", -1)):
        joints[:, index(f"{side}ForeArm"), 1] = sign * 0.46
        joints[:, index(f"{side}ForeArm"), 2] = 1.38
        joints[:, index(f"{side}Hand"), 1] = sign * 0.68
        joints[:, index(f"{side}Hand"), 2] = 1.38
    assert not truth.ordinary(joints).any()


def test_a_motion_without_the_signs_of_its_class_has_no_event() -> None:
    for kind in KINDS:
        assert not truth.abnormal(standing(), kind).any()
    assert not truth.abnormal(punching(), "climb").any()


def test_pauses_are_part_of_an_event_and_longer_ones_are_not() -> None:
    twice = np.maximum(jumping(300, 75), jumping(300, 75 + 28))
    assert len(true_runs(truth.abnormal(twice, "jump"))) == 1
    apart = np.maximum(jumping(300, 75), jumping(300, 75 + 90))
    assert len(true_runs(truth.abnormal(apart, "jump"))) == 2


def test_stretches_are_half_open() -> None:
    mask = np.array([1, 1, 0, 0, 1], dtype=np.bool_)
    assert true_runs(mask) == [(0, 2), (4, 5)]
    assert true_runs(np.zeros(3, dtype=np.bool_)) == []
