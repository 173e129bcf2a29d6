"""Usual motion: centroids of enough tracks, by fold, and distances to those of the others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad import Clip, Config, Detector, write_clip
from stepvad.config import Checkpoint
from stepvad.errors import ConfigError, DataError, ModelFileError
from stepvad.model import usual
from stepvad.model.modelfile import read_with_digest, write_tensors
from stepvad.model.usual import FEWEST_TRACKS, FOLDS, Centroids, cross_distances, folds_of_tracks
from stepvad.windows.runs import cut
from stepvad.windows.views import Windows

Points = NDArray[np.float32]
K = 6


def blobs(centres: int, rng: np.random.Generator) -> tuple[Points, NDArray[np.int64], Points]:
    """Points in tight groups far apart, the track of each, and the middles; tracks visit all."""
    middles = (20 * rng.normal(size=(centres, K))).astype(np.float32)
    group, track = (rng.integers(0, n, 4000) for n in (centres, 40))
    z = middles[group] + 0.1 * rng.normal(size=(4000, K)).astype(np.float32)
    return z.astype(np.float32), track, middles


def brute(z: Points, points: Points) -> NDArray[np.float64]:
    """Distances of all z to all points, `(N, n)`."""
    return np.linalg.norm(z[:, None].astype(np.float64) - points[None], axis=2)


def test_clusters_that_are_apart_are_found_in_each_fold() -> None:
    z, track, middles = blobs(8, np.random.default_rng(0))
    found = Centroids.fit(z, track, track % FOLDS, np.random.default_rng(1))
    for fold in range(FOLDS):
        own = found.points[found.fold == fold]
        assert brute(middles, own).min(axis=1).max() < 0.2, "each cluster has a centroid"
        assert brute(own, middles).min(axis=1).max() < 0.5, "which is in none between"


def test_rounds_bring_centroids_nearer_to_the_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    z, far = rng.normal(size=(4000, 2)).astype(np.float32), []
    for rounds in (0, 1, usual.ROUNDS):
        monkeypatch.setattr(usual, "ROUNDS", rounds)
        points, label = usual.k_means(z, 20, np.random.default_rng(1))
        np.testing.assert_array_equal(label, brute(z, points).argmin(axis=1))
        far.append(np.square(z - points[label]).sum(axis=1).mean())
    assert far[1] < 0.9 * far[0]
    assert far[2] < 0.9 * far[1]


def test_no_centroid_is_the_mean_of_fewer_than_five_tracks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    z, track, _ = blobs(8, rng)
    z[track == 7] += 1000  # somebody who does what nobody else does, often
    made: list[tuple[Points, NDArray[np.int64], Points]] = []
    means = usual._means

    def recorded(z: Points, label: NDArray[np.int64]) -> Points:
        made.append((z, label, means(z, label)))
        return made[-1][2]

    monkeypatch.setattr(usual, "_means", recorded)
    found = Centroids.fit(z, track, track % FOLDS, rng)
    by_track = {row.tobytes(): int(one) for row, one in zip(z, track, strict=True)}
    for fold in range(FOLDS):
        points = found.points[found.fold == fold]
        (own, label) = next(one[:2] for one in made if np.array_equal(one[2], points))
        tracks = np.array([by_track[row.tobytes()] for row in own])
        assert {*(tracks % FOLDS).tolist()} == {fold}, "of its own fold alone"
        n = [len(np.unique(tracks[label == number])) for number in range(len(points))]
        assert min(n) >= FEWEST_TRACKS
    assert found.points.max() < 1000, "nor is there one of a single person"


def test_centroids_are_fewer_where_few_tracks_take_part() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4000, K)).astype(np.float32)
    many, few = (
        Centroids.fit(z, track, track % FOLDS, np.random.default_rng(1))
        for track in (rng.integers(0, 2000, 4000), rng.integers(0, 24, 4000))
    )
    assert len(few) < len(many) <= usual.CENTROIDS
    with pytest.raises(DataError, match="at least 5 tracks in each part of the clips, got 4"):
        Centroids.fit(z, np.arange(4000) % 16, np.arange(4000) % FOLDS, rng)


def test_clusters_grow_until_those_of_enough_tracks_hold_half_of_the_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    track = np.arange(4000) // 80
    z = (20 * rng.normal(size=(50, K))[track] + rng.normal(size=(4000, K))).astype(np.float32)
    z[::5] = 0.01 * rng.normal(size=(800, K))  # everybody stands here, then goes where nobody does
    labels: list[NDArray[np.int64]] = []
    k_means = usual.k_means

    def recorded(*given: Any) -> tuple[Points, NDArray[np.int64]]:
        points, label = k_means(*given)
        labels.append(label)
        return points, label

    monkeypatch.setattr(usual, "k_means", recorded)
    usual._centroids(z, track, 500, np.random.default_rng(1))
    held = []
    for label in labels:
        n = [len(np.unique(track[label == number])) for number in range(label.max() + 1)]
        held.append((np.array(n) >= FEWEST_TRACKS)[label].mean())
    assert held[0] > 0, "the first clusters have one of enough tracks"
    assert max(held[:-1]) < 0.5 <= held[-1]


def test_distances_are_exact_in_batches_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(50, K)).astype(np.float32)
    centroids = Centroids(points, np.arange(50) % FOLDS)
    z = rng.normal(size=(300, K)).astype(np.float32)
    z[7], z[9] = points[3], points[4] + np.float32(1e-4)
    expected = brute(z, points)
    for size in (usual.BATCH, 64):
        monkeypatch.setattr(usual, "BATCH", size)
        np.testing.assert_array_equal(centroids.nearest(z), expected.argmin(axis=1))
        np.testing.assert_allclose(centroids.distances(z), expected.min(axis=1), rtol=1e-5)
    assert centroids.distances(z)[7] == 0
    assert centroids.distances(z[:0]).shape == (0,)


def test_the_distance_of_known_footage_is_never_to_its_own_fold() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, K)).astype(np.float32)
    fold = rng.integers(0, FOLDS, 200)
    centroids = Centroids(z, fold)  # each point is a centroid of its own fold
    others = np.where(fold[:, None] == fold, np.inf, brute(z, z))
    np.testing.assert_allclose(cross_distances(centroids, z, fold), others.min(axis=1), rtol=1e-5)
    left = centroids.without(2)
    assert len(left) == (fold != 2).sum()
    np.testing.assert_array_equal(left.points, z[fold != 2])
    np.testing.assert_array_equal(left.half, centroids.half[fold != 2])


def test_clips_take_turns_over_the_folds_and_tracks_where_clips_are_few() -> None:
    five = [5] * 6
    assert folds_of_tracks(five).tolist() == np.repeat([0, 1, 2, 3, 0, 1], 5).tolist()
    stated = folds_of_tracks(five, [3, 3, 2, 1, 0, 7])
    assert stated.tolist() == np.repeat([3, 3, 2, 1, 0, 3], 5).tolist()
    for few in ([12, 9], [8, 8, 8, 4]):
        assert folds_of_tracks(few).tolist() == (np.arange(sum(few)) % FOLDS).tolist()
    with pytest.raises(DataError, match="each of 4 parts of the clips, got 5, 5, 5, 4") as error:
        folds_of_tracks([6, 6, 6, 1])
    assert error.value.hint
    with pytest.raises(DataError, match="each of 4 parts of the clips, got 9, 9, 9, 4"):
        folds_of_tracks([9, 9, 9, 4], [0, 1, 2, 3])
    with pytest.raises(DataError, match="folds: expected one for each of 6 clips, got 2"):
        folds_of_tracks(five, [0, 1])


def test_a_detector_without_a_fold_has_only_the_centroids_of_the_others(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    clip, less = usual_footage[2], usual_model.without(2)
    windows = cut(clip, usual_model.view_settings, usual_model.skeleton)[0].windows(slice(None))
    for own, whole, part in zip(windows.views, usual_model.views, less.views, strict=True):
        known = whole.model.centroids
        others = known.points[known.fold != 2]
        assert 0 < len(others) < len(known)
        d = brute(whole.model.space.project(own.windows.x), others).min(axis=1)
        np.testing.assert_allclose(part.score(own.windows)[1], d, rtol=1e-4)
        assert part.surprise is whole.surprise
    # of footage that was learned from, scores are higher without what it taught
    assert less.score(clip).A.mean() > usual_model.score(clip).A.mean()


def test_unseen_footage_is_as_usual_as_what_the_ranks_were_measured_on(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    parts = [usual_model.without(n % FOLDS).score(clip) for n, clip in enumerate(usual_footage)]
    E = np.concatenate([part.windows.E for part in parts])
    np.testing.assert_allclose(E[:, :3].mean(axis=0), 1, atol=0.1)  # the place is capped


def windows_of(detector: Detector, clip: Clip) -> Windows:
    return cut(clip, detector.view_settings, detector.skeleton)[0].windows(slice(None))


@pytest.mark.parametrize("kinds", [("pose",), ("pose", "motion"), ("pose", "motion", "place")])
def test_the_larger_of_pose_and_motion_counts_and_the_place_as_much(
    usual_model: Detector, usual_footage: list[Clip], kinds: tuple[str, ...]
) -> None:
    kept = [view for view in usual_model.views if view.config.view in kinds]
    detector = replace(usual_model, views=tuple(kept))
    windows = windows_of(detector, usual_footage[0])
    scores = detector.score_windows(windows)
    expected = poses = scores.E[:, :2].mean(axis=1)
    if "motion" in kinds:
        expected = np.maximum(poses, scores.E[:, 2])
        assert 0.05 < (scores.E[:, 2] > poses).mean() < 0.95
    if "place" in kinds:
        expected = (expected + scores.E[:, 3]) / 2
    np.testing.assert_allclose(scores.A, expected, rtol=1e-5)
    added = detector.contributions(windows)
    np.testing.assert_allclose(added.sum(axis=1), scores.A, rtol=1e-5)
    if "motion" in kinds:
        assert ((added[:, 2] == 0) != (added[:, :2].sum(axis=1) == 0)).all(), "one of them is heard"


def test_the_same_footage_and_seed_give_the_same_bytes_and_scores(
    usual_model: Detector, usual_footage: list[Clip], tmp_path: Path
) -> None:
    usual_model.save(tmp_path / "a")
    read = Detector.load(tmp_path / "a")
    read.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    now, then = (one.score(usual_footage[0]).A for one in (read, usual_model))
    assert now.tobytes() == then.tobytes()
    again, other = (
        Detector.fit(usual_footage, Config.usual(25.0, ("pose", "motion", "place"), seed=seed))
        for seed in (0, 1)
    )
    again.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert not np.array_equal(again.model.centroids.points, other.model.centroids.points)


Damage = Callable[[dict[str, Any], dict[str, Any]], object]
DAMAGES: dict[str, tuple[Damage, str]] = {
    "a centroid too few": (
        lambda t, m: t.update({"view0.centroids": t["view0.centroids"][1:]}),
        "tensor view0.centroids must be float32 of shape",
    ),
    "centroids of another space": (
        lambda t, m: t.update({"view1.centroids": t["view1.centroids"][:, 1:]}),
        "tensor view1.centroids must be float32 of shape",
    ),
    "no number": (
        lambda t, m: t.update({"view2.centroids": np.full_like(t["view2.centroids"], np.nan)}),
        "tensor view2.centroids must be finite",
    ),
    "one fold": (lambda t, m: t["view0.folds"].fill(0), "tensor view0.folds must be 0 to 3"),
    "no folds": (lambda t, m: t.pop("view3.folds"), "'view3.folds' is missing"),
    "no ranks": (lambda t, m: t.pop("view1.ages"), "'view1.ages' is missing"),
    "a scale of nothing": (
        lambda t, m: t.update({"view2.0.scale": np.zeros(1)}),
        "must be positive",
    ),
    "one view": (lambda t, m: m.update(views=m["views"][:1]), "views: expected one pose"),
    "no pose": (lambda t, m: m.update(views=m["views"][2:]), "views: expected one pose"),
    "the shorter first": (lambda t, m: m["views"].reverse(), "views: expected"),
    "two motions": (
        lambda t, m: m["views"].append(m["views"][2]),
        "got pose, pose, motion, place, motion",
    ),
    "an energy among them": (
        lambda t, m: m["views"][1].update(scored_by="energy"),
        "views: expected one pose",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_files_of_no_detector_are_refused(
    usual_model: Detector, tmp_path: Path, damage: str
) -> None:
    usual_model.save(tmp_path / "a")
    tensors, meta, _ = read_with_digest(tmp_path / "a")
    change, words = DAMAGES[damage]
    change(tensors, meta)
    write_tensors(tensors, meta, tmp_path / "b")
    with pytest.raises(ModelFileError, match=words):
        Detector.load(tmp_path / "b")


def test_what_is_of_the_energy_alone_says_so(
    usual_model: Detector, usual_footage: list[Clip], small_model: Detector, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="expected a model of the paper's energy, got one of us"):
        usual_model.export(tmp_path / "model.onnx")
    with pytest.raises(ConfigError, match="expected a model of the paper's energy, got one of us"):
        _ = usual_model.model.energy
    with pytest.raises(ConfigError, match="expected a model of usual motion, got one of the pap"):
        _ = small_model.model.centroids
    views = Config.usual(25.0)
    with pytest.raises(ConfigError, match="fit: usual motion has no validation, checkpoints"):
        Detector.fit(usual_footage, views, checkpoint=Checkpoint(tmp_path / "x"))
    for wrong in (views[:1], [replace(views[0], scored_by="energy"), *views[1:]], [], views[::-1]):
        with pytest.raises(ConfigError, match="views: expected one pose"):
            Detector.fit(usual_footage, wrong)
    with pytest.raises(ConfigError, match="views: expected the longest first, got T = 8"):
        Detector.fit(usual_footage, views[1::-1])
    with pytest.raises(DataError, match="tracks of people in each of 4 parts of the clips, got"):
        Detector.fit(usual_footage[:2], views)
    assert usual_model.without(0).engine == "numpy"


WITHOUT_TORCH = """
import sys
from stepvad import Config, Detector, read_clip
detector = Detector.fit([read_clip(path) for path in sys.argv[1:]], Config.usual(25.0))
print(len(detector.views), "torch" in sys.modules)
"""


def test_a_fit_of_usual_motion_imports_no_torch(usual_footage: list[Clip], tmp_path: Path) -> None:
    paths = [tmp_path / f"{clip.name}.json" for clip in usual_footage]
    for clip, path in zip(usual_footage, paths, strict=True):
        write_clip(clip, path)
    command: list[str | Path] = [sys.executable, "-c", WITHOUT_TORCH, *paths]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["3", "False"]
