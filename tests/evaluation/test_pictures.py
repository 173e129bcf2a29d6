from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad import Config, Scores, Track, WindowScores
from stepvad.errors import DataError
from stepvad.evaluation import pictures
from stepvad.evaluation.datasets import open_dataset
from stepvad.evaluation.protocol import ScoredClip
from stepvad.formats.labels import FrameLabels
from stepvad.model.footage import Footage
from stepvad.model.pcspace import Moments, PCSpace
from stepvad.poses import Clip
from stepvad.skeletons import BOX, COCO17, STEP18
from stepvad.windows import Repairs, cut

D, RANK = 24, 6
SHAPE = (2, 4, 3)


def low_rank(n: int, seed: int) -> NDArray[np.float32]:
    """Windows `(n, 2, 4, 3)` that vary in six directions only, each half as much as the last."""
    directions = np.linalg.qr(np.random.default_rng(0).standard_normal((D, D)))[0][:, :RANK]
    latents = np.random.default_rng(seed).standard_normal((n, RANK)) * 0.5 ** np.arange(RANK)
    return (1 + latents @ directions.T).astype(np.float32).reshape(n, *SHAPE)


@pytest.fixture(scope="module")
def space() -> PCSpace:
    rows = low_rank(2000, 1).reshape(-1, D)
    return PCSpace.fit(Moments.of([rows], D), None)


def test_a_space_without_k_keeps_all_components_up_to_the_rank(space: PCSpace) -> None:
    assert space.W_K.shape == (D, RANK)
    two = pictures.narrowed(space, 2)
    np.testing.assert_array_equal(two.W_K, space.W_K[:, :2])
    with pytest.raises(DataError, match="K: expected 1 to 6, the rank of the windows, got 7"):
        pictures.narrowed(space, 7)


def test_no_step_gives_the_window_back_up_to_what_pca_loses(space: PCSpace) -> None:
    (x,) = low_rank(1, 2)
    (whole,) = pictures.traverse(space, x, 0, [0.0])
    np.testing.assert_allclose(whole, x, atol=1e-5)
    two = pictures.narrowed(space, 2)
    (part,) = pictures.traverse(two, x, 0, [0.0])
    residual = (x - part).reshape(-1)
    assert np.abs(residual).max() > 0.01
    np.testing.assert_allclose(residual @ two.W_K, 0, atol=1e-5)


@pytest.mark.parametrize("whiten", [True, False])
def test_a_step_of_sigmas_moves_along_one_component_alone(space: PCSpace, whiten: bool) -> None:
    (x,) = low_rank(1, 2)
    space = PCSpace(space.mu, space.W_K, space.Lambda_K, whiten)
    back, none, forth = pictures.traverse(space, x, 1, [-2.0, 0.0, 2.0])
    step = 2 * np.sqrt(space.Lambda_K[1]) * space.W_K[:, 1].reshape(SHAPE)
    np.testing.assert_allclose(forth - none, step, atol=1e-5)
    np.testing.assert_allclose(none - back, step, atol=1e-5)


def test_a_tight_bottleneck_takes_noise_out(space: PCSpace) -> None:
    (x,) = low_rank(1, 3)
    clean, noisy = pictures.low_pass(space, x, [0.0, 0.3], None, seed=0)
    np.testing.assert_array_equal(clean, x)
    drawn = np.random.default_rng(0).standard_normal(x.shape, dtype=np.float32)
    np.testing.assert_allclose(noisy, x + 0.3 * drawn, atol=1e-6)
    _, through = pictures.low_pass(space, x, [0.0, 0.3], RANK, seed=0)
    assert np.square(through - x).mean() < 0.6 * np.square(noisy - x).mean()


def test_errors_are_those_of_projecting_and_coming_back(space: PCSpace) -> None:
    x = low_rank(50, 4)
    errors = pictures.reconstruction_errors(space, iter([x]), [0.0, 0.4], seed=5)
    assert errors.shape == (2, RANK)
    noise = np.random.default_rng(5).standard_normal((50, D), dtype=np.float32).reshape(x.shape)
    for row, size in enumerate([0.0, 0.4]):
        for K in range(1, RANK + 1):
            through = pictures.narrowed(space, K)
            back = through.reconstruct(through.project(x + np.float32(size) * noise), SHAPE)
            direct = np.square(back - x, dtype=np.float64).mean()
            assert errors[row, K - 1] == pytest.approx(direct, rel=1e-3, abs=1e-8)


def test_more_components_help_without_noise_and_only_so_far_with_it(space: PCSpace) -> None:
    batches = [low_rank(500, 6), low_rank(500, 7)]
    clean, noisy = pictures.reconstruction_errors(space, iter(batches), [0.0, 0.1], seed=0)
    assert (np.diff(clean) < 0).all()
    # component j carries 4^-j and costs 0.01: worth keeping down to 4^-3 = 0.0156, not to 4^-4
    assert noisy.argmin() + 1 == 4
    assert noisy[-1] == pytest.approx(0.01 * RANK / D, rel=0.05)


def test_errors_of_no_window_are_refused(space: PCSpace) -> None:
    with pytest.raises(DataError, match="windows: expected at least one, got none"):
        pictures.reconstruction_errors(space, iter([]), [0.0], seed=0)


def person(step: float, *, height: float = 100, n: int = 12) -> Track:
    """Somebody 100 pixels tall who goes `step` pixels a frame to the right."""
    keypoints = np.zeros((n, 17, 2), dtype=np.float32)
    keypoints[..., 1] = np.linspace(0, height, 17)
    keypoints[..., 0] = step * np.arange(n)[:, None] + np.arange(17)
    return Track(int(10 * step) + 1, np.arange(n), keypoints, np.ones((n, 17), dtype=np.float32))


def test_the_way_is_that_of_the_hips_in_heights_of_the_body() -> None:
    clip = Clip("street", 25.0, 12, (person(0), person(2), person(5)))
    index, _ = cut(clip, Config(), STEP18)
    tall = 100.0  # of 18 joints as of 17: the neck is inside
    np.testing.assert_allclose(pictures.ways(index, STEP18), [0, 22 / tall, 55 / tall], rtol=1e-6)


def test_a_skeleton_without_hips_goes_by_all_its_joints() -> None:
    corners = np.array([[0, 0], [4, 0], [4, 10], [0, 10]], dtype=np.float32)
    keypoints = corners + np.arange(12)[:, None, None] * np.array([1, 0], np.float32)
    confidence = np.ones((12, 4), np.float32)
    clip = Clip("boxes", 25.0, 12, (Track(1, np.arange(12), keypoints, confidence),), BOX)
    index, _ = cut(clip, Config(), BOX)
    np.testing.assert_allclose(pictures.ways(index, BOX), [1.1], rtol=1e-6)


def test_who_moves_really_moves_more_and_the_same_people_are_chosen_again(
    walker_dataset: Path,
) -> None:
    dataset, config = open_dataset(walker_dataset), Config(K=12)
    whole, footage = pictures.fit_space(dataset, config)
    space = pictures.narrowed(whole, 12)
    test = pictures.normal_footage(dataset, config, footage.skeleton)
    static, moving = pictures.choose_people(test.index, footage.skeleton, space)
    assert static.way < 0.1
    assert moving.way > 0.2
    again = pictures.choose_people(test.index, footage.skeleton, space)
    np.testing.assert_array_equal([p.x for p in again], [static.x, moving.x])
    assert static.x.shape == (2, 18, 12)


def test_people_are_chosen_from_normal_frames_alone(walker_dataset: Path) -> None:
    dataset, config = open_dataset(walker_dataset), Config()
    normal = pictures.normal_footage(dataset, config, STEP18)
    every = Footage.read((clip for clip, _ in dataset.test_clips()), config, STEP18)
    assert 0 < len(normal) < len(every)


def scored(name: str, values: list[float], abnormal: list[bool]) -> ScoredClip:
    """A clip of one person with these scores, in every frame from the second on."""
    n = len(values) + 1
    A = np.array(values, dtype=np.float32)
    frame = np.arange(1, n)
    ones = np.ones(n - 1, dtype=np.float32)
    windows = WindowScores(np.ones(n - 1, np.int64), frame, ones, A[:, None], A)
    truth = np.array([True, *abnormal])  # the first frame has no score and does not count
    labels = FrameLabels(truth, np.ones(n, dtype=np.bool_))
    return ScoredClip(Scores(name, n, 12, windows, Repairs(), 0), labels, np.ones(n, np.int64))


def test_clips_are_ranked_by_how_often_an_abnormal_frame_scores_higher() -> None:
    truth = [True, True, False, False]
    good = scored("good", [4, 3, 2, 1], truth)
    fair = scored("fair", [4, 1, 3, 2], truth)
    poor = scored("poor", [3, 1, 4, 2], truth)
    bad = scored("bad", [1, 2, 3, 4], truth)
    normal = scored("normal", [1, 2, 3, 4], [False] * 4)
    clips = [fair, normal, bad, good, poor]

    def names(n: int) -> list[str]:
        return [clip.scores.clip for clip, _ in pictures.best_and_worst(clips, n)]

    assert [value for _, value in pictures.best_and_worst(clips, 9)] == [1, 0.5, 0.25, 0]
    assert names(2) == ["good", "bad"]
    assert names(3) == ["good", "fair", "bad"]
    assert names(1) == ["good"]
    with pytest.raises(DataError, match="a test clip with normal and abnormal frames, got none"):
        pictures.best_and_worst([normal], 2)


def test_poses_of_abnormal_frames_are_left_out() -> None:
    abnormal = np.arange(12) >= 6
    labels = FrameLabels(abnormal, np.ones(12, dtype=np.bool_))
    clip = Clip("street", 25.0, 12, (person(1),), COCO17)
    (track,) = pictures.normal_part(clip, labels).tracks
    assert track.frames.tolist() == [0, 1, 2, 3, 4, 5]
