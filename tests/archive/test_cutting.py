"""Windows of clips that come some rows at a time are those of clips read whole, to the bit."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepvad import Config, windows
from stepvad.archive import cutting
from stepvad.archive.cutting import Cutter
from stepvad.errors import DataError
from stepvad.formats.trackheader import ClipFacts
from stepvad.formats.trackrows import Rows
from stepvad.poses import Clip
from stepvad.skeletons import of_size
from stepvad.windows import Counts, Windows, cut_in_pieces

V = 3
CONFIG = Config(T=4, K=2)


def random_rows(seed: int, lengths: list[int]) -> Rows:
    """Tracks with gaps short and long, and with confidences as estimators give them."""
    rng = np.random.default_rng(seed)
    track = np.repeat(np.arange(len(lengths)) * 3, lengths)
    steps = rng.choice([1, 1, 1, 1, 2, 4, 5, 6, 9], size=len(track))
    frame = np.concatenate([np.cumsum(part) for part in np.split(steps, np.cumsum(lengths)[:-1])])
    joints = rng.normal(300, 40, (len(track), V, 3)).astype(np.float32)
    joints[..., 2] = rng.choice([0.5, 0.9, 1.2, np.nan, 0.0], size=joints.shape[:2])
    joints[rng.random(joints.shape[:2]) < 0.05] = 0
    return Rows(track, frame, joints[..., :2].copy(), joints[..., 2].copy())


def cut_by_parts(rows: Rows, edges: list[int], config: Config) -> tuple[list[Windows], Counts]:
    cutter = Cutter(None, config, of_size(V), of_size(V))
    found = []
    for first, end in pairwise(edges):
        found += [index.windows(slice(None)) for index in cutter.add(rows[slice(first, end)])]
    found += [index.windows(slice(None)) for index in cutter.finish()]
    assert cutter.n_frames == rows.frame.max() + 1
    return found, cutter.counts


def cut_whole(rows: Rows, config: Config) -> tuple[list[Windows], Counts]:
    clip = Clip("a", None, int(rows.frame.max()) + 1, rows.tracks(), of_size(V))
    pieces = list(cut_in_pieces(clip, config, of_size(V)))
    found = [index.windows(slice(None)) for index, _ in pieces]
    return found, sum((counts for _, counts in pieces), Counts())


@pytest.mark.parametrize("piece", [5, 16, 32_768])
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    shares=st.lists(st.floats(0, 1), max_size=8),
    drop_last=st.booleans(),
)
def test_rows_in_parts_give_the_windows_and_batches_of_the_clip_read_whole(
    piece: int, seed: int, lengths: list[int], shares: list[float], drop_last: bool
) -> None:
    rows = random_rows(seed, lengths)
    n = len(rows.track)
    edges = sorted({0, n, *(int(share * n) for share in shares)})
    config = replace(CONFIG, drop_last_window=drop_last)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "PIECE", piece)
        patch.setattr(cutting, "PIECE", piece)
        (found, counts), (expected, expected_counts) = (
            cut_by_parts(rows, edges, config),
            cut_whole(rows, config),
        )
    assert counts == expected_counts
    # the same batches, but for an empty one at the end of a clip
    expected = [some for some in expected if len(some)]
    found = [some for some in found if len(some)]
    assert len(found) == len(expected)
    for some, others in zip(found, expected, strict=True):
        for name in ("x", "c", "track_id", "frame", "flat"):
            left, right = getattr(some, name), getattr(others, name)
            assert left.dtype == right.dtype
            assert left.tobytes() == right.tobytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.track[::-1], "expected rows in the order of tracks and frames"),
        (lambda rows: rows.keypoints.__setitem__((3, 1, 0), np.nan), "got nan"),
        (lambda rows: rows.keypoints.__setitem__((3, 1, 1), 1e9), "expected coordinates within"),
        (lambda rows: rows.frame.__setitem__(0, -1), "expected frames from 0"),
        (lambda rows: rows.frame.__setitem__(1, rows.frame[0]), "strictly increasing"),
    ],
)
def test_rows_that_make_no_tracks_are_refused(change: object, message: str) -> None:
    rows = random_rows(0, [8, 8])
    changed = change(rows)  # type: ignore[operator]  # parameters are objects
    rows = rows if changed is None else Rows(changed, rows.frame, rows.keypoints, rows.confidence)
    with pytest.raises(DataError, match=message):
        list(Cutter(None, CONFIG, of_size(V), of_size(V)).add(rows))


def test_order_is_kept_from_part_to_part_and_frames_stay_inside_the_clip() -> None:
    rows = random_rows(1, [8, 8])
    cutter = Cutter(None, CONFIG, of_size(V), of_size(V))
    list(cutter.add(rows[slice(4, 12)]))
    with pytest.raises(DataError, match="expected rows in the order"):
        list(cutter.add(rows[slice(0, 4)]))
    last = int(rows.frame.max())
    with pytest.raises(DataError, match=f"expected frames below {last}, got {last}"):
        list(Cutter(ClipFacts(10.0, last), CONFIG, of_size(V), of_size(V)).add(rows))
