"""Clips and files that the tests of this room share."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from stepvad.poses import MAX_COORDINATE, MAX_FRAME, Clip, Track
from stepvad.skeletons import COCO17, Skeleton, of_size

JSON = dict[str, object]


def track(track_id: int, frames: list[int], V: int = 17, seed: int = 0) -> Track:
    """A person with random joints."""
    rng = np.random.default_rng([seed, abs(track_id)])
    return Track(
        track_id,
        np.array(frames),
        rng.uniform(0, 1000, (len(frames), V, 2)).astype(np.float32),
        rng.uniform(0, 1, (len(frames), V)).astype(np.float32),
    )


def clip(name: str = "01_0014", fps: float | None = None, V: int = 17, seed: int = 0) -> Clip:
    """Two people with gaps, in a clip that ends with the last pose."""
    tracks = (track(2, [3, 4, 7], V, seed), track(11, [0, 5, 6, 9], V, seed))
    return Clip(name, fps, 10, tracks, of_size(V))


def empty_clip(name: str, skeleton: Skeleton = COCO17) -> Clip:
    """A clip in which nobody appears."""
    return Clip(name, 12.5, 40, (), skeleton)


def same(a: Clip, b: Clip) -> bool:
    """Whether two clips agree in every bit."""
    return (
        (a.name, a.fps, a.n_frames, a.skeleton) == (b.name, b.fps, b.n_frames, b.skeleton)
        and len(a.tracks) == len(b.tracks)
        and all(
            one.id == other.id
            and one.frames.tobytes() == other.frames.tobytes()
            and one.keypoints.tobytes() == other.keypoints.tobytes()
            and one.confidence.tobytes() == other.confidence.tobytes()
            for one, other in zip(a.tracks, b.tracks, strict=True)
        )
    )


def joints(V: int = 17, first: float = 0.0) -> list[float]:
    """Keypoints `first`, `first` + 1, … so that every number is told apart."""
    return [first + value for value in range(3 * V)]


def pose(V: int = 17, first: float = 0.0, score: float | None = 2.5) -> JSON:
    """One person in one frame, as AlphaPose writes it."""
    return {"keypoints": joints(V, first), "scores": score}


def result(image_id: object, track_id: object, V: int = 17, first: float = 0.0) -> JSON:
    """One person in one frame, as COCO keypoint results have it."""
    return {
        "image_id": image_id,
        "category_id": 1,
        "keypoints": joints(V, first),
        "score": 2.5,
        "track_id": track_id,
    }


def write_json(path: Path, document: object) -> Path:
    """Put a JSON file where the test wants it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def write_mask(path: Path, values: object, dtype: str = "uint8") -> Path:
    """Put an NPY file where the test wants it, whatever its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        np.save(out, np.array(values, dtype=dtype))
    return path


def check_clip(found: Clip) -> None:
    """Everything that the rest of the library relies on."""
    assert 0 <= found.n_frames <= MAX_FRAME + 1
    assert found.fps is None or 0 < found.fps < np.inf
    for track in found.tracks:
        n = len(track)
        assert n > 0
        assert -(2**63) <= track.id < 2**63
        assert (track.keypoints.shape, track.confidence.shape) == (
            (n, found.skeleton.V, 2),
            (n, found.skeleton.V),
        )
        assert (np.abs(track.keypoints) <= MAX_COORDINATE).all()
        assert (np.diff(track.frames) > 0).all()
        assert track.frames[0] >= 0
        assert track.frames[-1] < found.n_frames
