"""Windows do not depend on how many poses come at a time, and are those of a plain loop."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepvad import Config
from stepvad.poses import Clip, PoseRows
from stepvad.skeletons import COCO17, of_size
from stepvad.windows import Repairs, Windows, cut_in_pieces, prepare, runs
from stepvad.windows.cutting import in_pieces
from stepvad.windows.runs import runs_of

V = 3
CONFIG = Config(T=4, K=2)


def random_rows(seed: int, lengths: list[int]) -> PoseRows:
    """Tracks with gaps short and long, and with confidences as estimators give them."""
    rng = np.random.default_rng(seed)
    track = np.repeat(np.arange(len(lengths)) * 3, lengths)
    steps = rng.choice([1, 1, 1, 1, 2, 4, 5, 6, 9], size=len(track))
    frame = np.concatenate([np.cumsum(part) for part in np.split(steps, np.cumsum(lengths)[:-1])])
    joints = rng.normal(300, 40, (len(track), V, 3)).astype(np.float32)
    joints[..., 2] = rng.choice([0.5, 0.9, 1.2, np.nan, 0.0], size=joints.shape[:2])
    joints[rng.random(joints.shape[:2]) < 0.05] = 0
    return PoseRows(track, frame, joints[..., :2].copy(), joints[..., 2].copy())


def cut_by_parts(rows: PoseRows, edges: list[int], config: Config) -> tuple[list[Windows], Repairs]:
    parts = (rows[slice(first, end)] for first, end in pairwise(edges))
    pieces = [*in_pieces(runs_of(parts, config, of_size(V), of_size(V)), config, of_size(V))]
    found = [index.windows(slice(None)) for index, _ in pieces]
    return found, sum((counts for _, counts in pieces), Repairs())


def cut_whole(rows: PoseRows, config: Config) -> tuple[list[Windows], Repairs]:
    clip = Clip("a", None, int(rows.frame.max()) + 1, rows.tracks(), of_size(V))
    pieces = list(cut_in_pieces(clip, config, of_size(V)))
    found = [index.windows(slice(None)) for index, _ in pieces]
    return found, sum((counts for _, counts in pieces), Repairs())


def cut_by_a_loop(rows: PoseRows, config: Config) -> list[Windows]:
    """Pose by pose, each gap filled number by number, one window at a time."""
    keypoints, confidence, _ = prepare(rows.keypoints, rows.confidence, of_size(V), of_size(V))
    found: list[Windows] = []
    for id_ in np.unique(rows.track).tolist():
        run: list[tuple[int, np.ndarray, np.float32]] = []
        of_track: list[Windows] = []
        for i in np.flatnonzero(rows.track == id_).tolist():
            frame, new = int(rows.frame[i]), (keypoints[i], confidence[i])
            if run and frame - run[-1][0] - 1 > config.T:
                run = []
            last, *old = run[-1] if run else (frame - 1, *new)
            for between in range(last + 1, frame + 1):
                share = np.float32((between - last) / (frame - last))
                pose = [a + (b - a) * share for a, b in zip(old, new, strict=True)]
                run.append((between, *(new if between == frame else pose)))
                if len(run) >= config.T:
                    window = run[-config.T :]
                    of_track.append(
                        Windows.of(
                            np.array([[pose for _, pose, _ in window]]),
                            np.array([[sure for _, _, sure in window]]),
                            np.array([id_]),
                            np.array([between]),
                            config,
                        )
                    )
        ends_whole = len(run) >= config.T
        found += of_track[:-1] if config.drop_last_window and ends_whole else of_track
    return found


def all_bytes(some: list[Windows], name: str) -> bytes:
    return b"".join(getattr(windows, name).tobytes() for windows in some)


@pytest.mark.parametrize("piece", [5, 16, 32_768])
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    shares=st.lists(st.floats(0, 1), max_size=8),
    drop_last=st.booleans(),
)
def test_poses_in_parts_give_the_windows_and_batches_of_the_clip_read_whole(
    piece: int, seed: int, lengths: list[int], shares: list[float], drop_last: bool
) -> None:
    rows = random_rows(seed, lengths)
    n = len(rows.track)
    edges = sorted({0, n, *(int(share * n) for share in shares)})
    config = replace(CONFIG, drop_last_window=drop_last)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "PIECE", piece)
        found, counts = cut_by_parts(rows, edges, config)
        expected, expected_counts = cut_whole(rows, config)
    plain = cut_by_a_loop(rows, config)
    assert counts == expected_counts
    assert [len(some) for some in found] == [len(some) for some in expected]
    for name in ("x", "c", "track_id", "frame", "flat"):
        assert all_bytes(found, name) == all_bytes(expected, name) == all_bytes(plain, name)


def test_fractions_of_the_image_are_warned_of_and_pixels_are_not() -> None:
    pixels = np.random.default_rng(0).uniform(0, 1, (3, 17, 2)).astype(np.float32)
    confidence = np.ones((3, 17), np.float32)
    with pytest.warns(UserWarning, match=r"within 0 to 1; multiply x by the width"):
        prepare(pixels, confidence, COCO17, COCO17)
    prepare(pixels + 1, confidence, COCO17, COCO17)
    prepare(pixels - 0.5, confidence, COCO17, COCO17)
    prepare(np.zeros_like(pixels), confidence, COCO17, COCO17)  # joints that nobody found
    prepare(pixels[:0], confidence[:0], COCO17, COCO17)
