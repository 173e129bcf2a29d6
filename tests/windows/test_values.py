"""How much of a window was seen, not interpolated: by definition, and the same everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import DataError
from stepvad.poses import Clip, Track
from stepvad.skeletons import of_size
from stepvad.stream import Stream
from stepvad.windows import runs
from stepvad.windows.runs import Sampling, cut, cut_in_pieces
from stepvad.windows.views import ViewSettings, Windows
from tests.tracks import several, that_cuts

V = 3
ONE = Config(T=5, K=2, clock=True, fps=10.0)
SEVERAL = (replace(ONE, T=9), replace(ONE, T=4), replace(ONE, T=4, view="motion"))
Shares = dict[tuple[int, int], np.float32]


def missed_often(fps: float) -> Clip:
    """Three people, seen in some frames: gaps short, long, and of every other frame."""
    tracks = []
    for number, share in ((4, 0.7), (2, 0.4), (9, 1.0)):
        rng = np.random.default_rng(number)
        frames = np.flatnonzero(rng.random(120) < share)
        frames = frames[(frames < 50) | (frames >= 90)]
        points = 100 + np.cumsum(rng.standard_normal((len(frames), V, 2)), axis=0)
        sure = rng.uniform(0.1, 1, (len(frames), V))
        tracks.append(Track(number, frames, points.astype(np.float32), sure.astype(np.float32)))
    return Clip("gaps", fps, 120, tuple(tracks), of_size(V))


def by_definition(clip: Clip, configs: Sequence[Config], view: Config | None = None) -> Shares:
    """The share of seen poses of every window, or of a view of it, counted pose by pose."""
    sampling, T = Sampling.for_views(several(configs), clip.fps), (view or configs[0]).T
    least = Sampling.for_rate(view, clip.fps).span if view else sampling.least
    found: Shares = {}
    for track in clip.tracks:
        seen = {int(frame) for frame in track.frames}
        first, latest = -1, -(10**9)
        for frame in range(int(track.frames[0]), int(track.frames[-1]) + 1):
            if frame in seen:
                first = frame if frame - latest - 1 > sampling.gap else first
                latest = frame
            if min(one for one in seen if one >= frame) - latest - 1 > sampling.gap:
                continue
            if frame - first + 1 < least:
                continue
            own = [at for k in range(T) if (at := frame - k * sampling.ratio) >= first - 1e-6]
            n = sum({math.floor(at + 1e-6), math.ceil(at - 1e-6)} <= seen for at in own)
            found[track.id, frame] = np.float32(n / len(own))
    return found


def shares(parts: list[Windows]) -> Shares:
    return {
        (int(track), int(frame)): seen
        for part in parts
        for track, frame, seen in zip(part.track_id, part.frame, part.seen, strict=True)
    }


def streamed(clip: Clip, configs: Sequence[Config]) -> list[Windows]:
    stream = Stream(that_cuts(configs, of_size(V)), skeleton=of_size(V), fps=clip.fps)
    return [stream.push(frame, poses) for frame, poses in clip.by_frame()]


@pytest.mark.parametrize("configs", [(ONE,), SEVERAL], ids=["one view", "young windows"])
@pytest.mark.parametrize("fps", [4.0, 10.0, 12.0, 25.0, 30.0])
def test_the_share_of_seen_poses_is_the_same_everywhere(
    fps: float, configs: Sequence[Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    clip = missed_often(fps)
    expected = by_definition(clip, configs)
    assert {0 < share < 1 for share in expected.values()} == {True, False}
    assert shares([cut(clip, several(configs), of_size(V))[0].windows(slice(None))]) == expected
    assert shares(streamed(clip, configs)) == expected
    monkeypatch.setattr(runs, "PIECE", 7)
    pieces = cut_in_pieces(clip, several(configs), of_size(V))
    assert shares([piece.windows(slice(None)) for piece, _ in pieces]) == expected


def test_a_view_knows_what_was_seen_of_its_own_poses() -> None:
    clip = missed_often(10.0)
    whole = cut(clip, several(SEVERAL), of_size(V))[0].windows(slice(None))
    for view, config in zip(whole.views, SEVERAL, strict=True):
        assert shares([view.windows]) == by_definition(clip, SEVERAL, config)


def test_a_pose_between_two_frames_was_seen_if_both_were() -> None:
    seen = np.array([[True, True, True, False, True, True]])
    assert Sampling(3, 2.5).sample_seen(seen).tolist() == [[True, False, True]]  # 0, 2.5, 5
    assert Sampling(3, 2.0).sample_seen(seen[:, 1:]).tolist() == [[True, False, True]]  # 0, 2, 4
    assert Sampling(4, 0.5).sample_seen(seen[:, 2:5]).tolist() == [[False, False, False, True]]


def test_poses_count_as_seen_unless_stated(small_model: Detector) -> None:
    (track,) = (track for track in missed_often(10.0).tracks if track.id == 9)
    clip = Clip("seen", 10.0, 120, (track,), of_size(V))
    windows = cut(clip, [ViewSettings(ONE)], of_size(V))[0].windows(slice(None))
    assert set(windows.seen.tolist()) == {1.0}
    stated = Windows(windows.x, windows.c, windows.track_id, windows.frame, windows.flat)
    assert stated.seen.tobytes() == windows.seen.tobytes()
    with pytest.raises(DataError, match=r"seen must have shape \(\d+,\), got \(3,\)"):
        replace(windows, seen=np.ones(3, np.float32))


def test_scores_carry_what_was_seen(small_model: Detector, walkers: list[Clip]) -> None:
    (track, *_) = walkers[0].tracks
    kept = (track.frames % 3 == 0) | (track.frames > track.frames[-1] - 20)
    person = Track(track.id, track.frames[kept], track.keypoints[kept], track.confidence[kept])
    clip = replace(walkers[0], tracks=(person,))
    whole = cut(clip, small_model.view_settings, small_model.skeleton)[0].windows(slice(None))
    offline = small_model.score(clip).windows
    assert offline.seen.tobytes() == whole.seen.tobytes()
    assert len(set(offline.seen.tolist())) > 2
    stream = Stream(small_model, fps=clip.fps)
    online = [stream.update(frame, poses) for frame, poses in clip.by_frame()]
    assert np.concatenate([part.seen for part in online]).tobytes() == offline.seen.tobytes()
