"""Motions come in metres above their floor, and lists name each of them once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepvad.errors import DataError
from stepvad.evaluation.mocap import catalogue, motions
from stepvad.evaluation.mocap.motions import (
    ANKLE_M,
    CapturedMotion,
    open_archive,
    resample,
    unbroken,
)
from tests.evaluation.mocap.people import index, jumping, standing, walking


def test_a_motion_is_in_metres_above_its_own_floor(archive_path: Path) -> None:
    archive = open_archive(archive_path)
    for name in ("16_11", "15_01"):  # stored on floors of different heights
        joints = archive.motion(name).joints
        assert np.quantile(joints[..., 2].min(axis=1), 0.5) == pytest.approx(ANKLE_M, abs=0.01)
        assert joints[:, index("Head"), 2].mean() == pytest.approx(1.52, abs=0.02)


def test_left_stays_left_when_y_up_becomes_z_up(archive_path: Path) -> None:
    joints = open_archive(archive_path).motion("16_11").joints
    ahead = joints[-1, index("Hips")] - joints[0, index("Hips")]
    left = (joints[:, index("LeftArm")] - joints[:, index("RightArm")]).mean(axis=0)
    assert ahead[0] > 5
    assert np.cross(ahead, left)[2] > 0  # ahead, left and up are a right-handed frame


def test_subjects_that_fall_too_fast_are_slowed_down(archive_path: Path) -> None:
    archive = open_archive(archive_path)
    fast = motions.Archive(
        archive.path, archive.xyz, {"75_06": archive.first["16_01"]}, {"75_06": 150}
    )
    slowed, normal = fast.motion("75_06").joints, archive.motion("16_01").joints
    assert len(slowed) == 2 * len(normal) - 1
    np.testing.assert_allclose(slowed[::2], normal, atol=0.02)


def test_a_joint_that_jumps_breaks_the_motion_there() -> None:
    joints = standing(60)
    joints[20:25, index("LeftHand"), 0] += 0.5
    pieces = list(unbroken(CapturedMotion("00_00", joints)))
    assert [(piece.start, piece.stop) for piece in pieces] == [(0, 20), (20, 25), (25, 60)]


def test_a_fast_but_possible_motion_is_not_broken() -> None:
    assert list(unbroken(CapturedMotion("00_00", jumping()))) == [slice(0, 150)]


def test_resampling_a_line_gives_the_line() -> None:
    line = np.arange(10.0)[:, None, None] * np.ones((1, 15, 3))
    at = np.arange(0, 9, 0.7)
    np.testing.assert_allclose(resample(line, at)[:, 0, 0], at)


def test_a_missing_archive_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="STEPVAD_DATA"):
        open_archive(tmp_path / "none.npz")


def test_an_archive_with_other_joints_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", xyz=np.zeros((3, 2, 3)), lengths=[3], names=["a"], joints=["b"])
    with pytest.raises(DataError, match="15 joints"):
        open_archive(tmp_path / "x.npz")


def test_an_unknown_motion_is_named(archive_path: Path) -> None:
    with pytest.raises(DataError, match="expected motion 99_01"):
        open_archive(archive_path).motion("99_01")


def test_the_archive_is_looked_for_where_the_data_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STEPVAD_DATA", str(tmp_path))
    assert motions.find_archive() == tmp_path / "CMU-mocap" / "mocap_30fps_15j.npz"


def test_a_line_of_the_list_names_ranges_and_single_motions() -> None:
    assert catalogue.names("16:11-13,47 02:01") == ("16_11", "16_12", "16_13", "16_47", "02_01")


def every_name() -> list[str]:
    lines = [*catalogue.NORMAL.values(), *catalogue.ABNORMAL.values()]
    return [name for line in lines for name in catalogue.names(line)]


def test_no_motion_is_listed_twice() -> None:
    listed = every_name()
    assert sorted(set(listed)) == sorted(listed)


def test_no_person_is_in_two_halves() -> None:
    halves = [set(persons) for persons in catalogue.HALVES.values()]
    assert sum(map(len, halves)) == len(set.union(*halves))
    assert catalogue.half_of("20_01") == catalogue.half_of("18_01")  # one person, two numbers


def test_every_listed_motion_has_a_half_and_every_half_a_use() -> None:
    used = {catalogue.person_of(name) for name in every_name()}
    listed = {person for persons in catalogue.HALVES.values() for person in persons}
    assert used == listed


def test_copies_are_not_listed() -> None:
    copies = {"63", "73", "84", "102", "103", "105", "106", "117", "121", "122", "123", "139"}
    assert copies.isdisjoint(name.split("_")[0] for name in every_name())


def test_both_test_halves_show_every_class_by_two_persons() -> None:
    halves: tuple[catalogue.Half, ...] = ("a", "b")
    for half in halves:
        for kind in catalogue.KINDS:
            names = catalogue.abnormal_names(half, kind)
            assert len({catalogue.person_of(name) for name in names}) >= 2


def test_walkers_walk() -> None:
    joints = walking()
    assert np.ptp(joints[:, index("Hips"), 0]) == pytest.approx(1.2 * 149 / 30)
