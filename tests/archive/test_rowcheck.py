"""Rows that come some at a time are refused where a track would be."""

from __future__ import annotations

import numpy as np
import pytest

from stepvad.archive.rowcheck import RowCheck
from stepvad.errors import DataError
from stepvad.formats.tracks import ClipFacts
from stepvad.poses import PoseRows

TRACK, FRAME = np.repeat([0, 3], 8), np.tile(np.arange(8) * 2, 2)


def rows() -> PoseRows:
    joints = np.random.default_rng(0).normal(300, 40, (16, 3, 2)).astype(np.float32)
    return PoseRows(TRACK.copy(), FRAME.copy(), joints, np.ones((16, 3), np.float32))


@pytest.mark.parametrize(
    ("column", "at", "value", "message"),
    [
        ("track", slice(None), TRACK[::-1], "expected rows sorted by track and frame"),
        ("keypoints", (3, 1, 0), np.nan, "got nan"),
        ("keypoints", (3, 1, 1), 1e9, "expected coordinates within"),
        ("frame", 0, -1, "expected frames from 0"),
        ("frame", 1, FRAME[0], "strictly increasing"),
    ],
)
def test_rows_that_make_no_tracks_are_refused(
    column: str, at: object, value: object, message: str
) -> None:
    changed = rows()
    getattr(changed, column)[at] = value
    with pytest.raises(DataError, match=message):
        RowCheck(None)(changed)


def test_order_is_kept_from_part_to_part() -> None:
    check = RowCheck(None)
    assert check(rows()[slice(4, 12)]).track.tolist() == TRACK[4:12].tolist()
    with pytest.raises(DataError, match="expected rows sorted"):
        check(rows()[slice(0, 4)])


def test_a_clip_whose_length_nobody_told_ends_with_its_last_pose() -> None:
    check = RowCheck(None)
    check(rows()[slice(0, 4)])
    assert check.n_frames == 7
    check(rows()[slice(4, 16)])
    assert check.n_frames == 15


def test_frames_stay_inside_the_clip() -> None:
    assert RowCheck(ClipFacts(10.0, 15))(rows()).frame.max() == 14
    with pytest.raises(DataError, match="expected frames below 14, got 14"):
        RowCheck(ClipFacts(10.0, 14))(rows())
