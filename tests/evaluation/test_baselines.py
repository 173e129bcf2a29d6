"""Every method by its name, and distances worked by hand: fitted, saved, loaded, scored."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.cli.files import METHODS as WORDS
from stepvad.config import Config, DistanceMethod, Method, Network, Projection, Reference
from stepvad.detector import Detector
from stepvad.errors import ConfigError, DataError, ModelFileError, StepvadError
from stepvad.evaluation import baselines
from stepvad.evaluation.baselines import DistanceDetector, Fitted, Neighbours
from stepvad.evaluation.datasets import open_dataset
from stepvad.evaluation.protocol import Scorer, evaluate
from stepvad.formats.labels import FrameLabels
from stepvad.model.modelfile import Origin, read_with_digest, write_tensors
from stepvad.model.pcspace import PCSpace
from stepvad.poses import Clip, Track
from stepvad.skeletons import STEP18, of_size
from stepvad.windows.body import Repairs
from stepvad.windows.runs import cut
from stepvad.windows.views import ViewSettings, Windows

METHODS: list[Method] = [method for method in get_args(Method) if method != "usual"]
TINY = Config(T=3, K=5, width=8, sigma_width=4, blocks=2, L=3, max_steps=3)


@pytest.fixture(scope="module")
def fitted(walkers: list[Clip]) -> dict[Method, Fitted]:
    return {method: baselines.fit(method, walkers[:1], TINY, k=2) for method in METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_known_by_the_name_it_was_fitted_by(
    fitted: dict[Method, Fitted], method: Method
) -> None:
    assert baselines.method_of(fitted[method]) == method
    assert isinstance(fitted[method], DistanceDetector) == baselines.is_distance(method)


@pytest.mark.parametrize("network", get_args(Network))
@pytest.mark.parametrize("projection", get_args(Projection))
@pytest.mark.parametrize("method", [m for m in METHODS if not baselines.is_distance(m)])
def test_a_name_decides_projection_and_network_and_nothing_else(
    method: Method, projection: Projection, network: Network
) -> None:
    start = replace(
        TINY, reference=Reference(projection=projection, whitening=0.0), network=network, seed=7
    )
    config = baselines.variant(method, start)
    wanted: dict[Method, tuple[Projection, Network]] = {
        "step": ("pca", "modulated"),
        "raw-modulated": ("raw", "modulated"),
        "raw": ("raw", "vanilla"),
        "vanilla": ("pca", "vanilla"),
    }
    assert (config.reference.projection, config.network) == wanted[method]
    assert replace(config, reference=start.reference, network=network) == start


@pytest.mark.parametrize("method", METHODS)
def test_a_method_saved_and_loaded_scores_to_the_bit_the_same(
    fitted: dict[Method, Fitted], walkers: list[Clip], tmp_path: Path, method: Method
) -> None:
    detector = fitted[method]
    detector.save(tmp_path / "m")
    loaded = baselines.load(tmp_path / "m")
    assert baselines.method_of(loaded) == method
    assert loaded.config == detector.config
    now, then = loaded.score(walkers[1]), detector.score(walkers[1])
    assert now.A.tobytes() == then.A.tobytes()
    assert now.windows.E.tobytes() == then.windows.E.tobytes()
    assert np.isfinite(now.A).all()
    assert now.A.std() > 0


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_bytes(
    fitted: dict[Method, Fitted], walkers: list[Clip], tmp_path: Path, method: Method
) -> None:
    fitted[method].save(tmp_path / "a")
    baselines.fit(method, iter(walkers[:1]), TINY, k=2).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_score_matching_methods_have_the_network_of_their_name(
    fitted: dict[Method, Fitted],
) -> None:
    for method in METHODS:
        detector = fitted[method]
        if isinstance(detector, Detector):
            modulated = "blocks.0.alpha.weight" in detector.model.energy.weights
            assert modulated == (method not in ("raw", "vanilla"))


def test_raw_keeps_all_coordinates_as_they_are(
    fitted: dict[Method, Fitted], walkers: list[Clip]
) -> None:
    raw = fitted["raw"]
    assert isinstance(raw, Detector)
    D = 2 * 18 * TINY.T
    assert raw.config.K == D
    windows = cut(walkers[0], [ViewSettings(TINY)], STEP18)[0].windows(slice(0, 9))
    np.testing.assert_array_equal(raw.model.space.project(windows.x), windows.x.reshape(9, D))
    assert raw.model.energy.weights["input.weight"].shape == (TINY.width, D + 1)


def test_neighbours_are_for_knn_alone(fitted: dict[Method, Fitted]) -> None:
    knn = fitted["knn"]
    assert isinstance(knn, DistanceDetector)
    assert knn.neighbours is not None
    assert knn.neighbours.k == 2


def test_the_commands_know_every_method() -> None:
    assert tuple(WORDS) == get_args(Method)


def test_usual_motion_has_views_of_the_rate_of_the_clips(usual_footage: list[Clip]) -> None:
    stateless = [replace(clip, fps=None) for clip in usual_footage]
    found = baselines.fit("usual", stateless, replace(TINY, fps=30.0), views=["pose"])
    assert baselines.method_of(found) == "usual"
    assert [view.config.view_name for view in found.view_settings] == [
        *("pose over 30 frames", "pose over 10 frames")
    ]
    with pytest.raises(DataError, match="expected clips to fit on, got none"):
        baselines.fit("usual", [])


@pytest.mark.parametrize("method", METHODS)
def test_people_who_run_or_fall_score_higher_by_every_method(
    walkers: list[Clip], walker_test: list[tuple[Clip, FrameLabels]], method: Method
) -> None:
    config = replace(TINY, T=12, K=16, width=48, batch_size=128, max_steps=150, ema_warmup=True)
    config = replace(config, learning_rate=2e-3)
    detector = baselines.fit(method, walkers, config)
    normal, abnormal = [], []
    for clip, labels in walker_test:
        frames = detector.score(clip).frames
        scored = ~np.isnan(frames)
        normal.append(frames[scored & ~labels.abnormal])
        abnormal.append(frames[scored & labels.abnormal])
    assert np.median(np.concatenate(abnormal)) > np.quantile(np.concatenate(normal), 0.75)


CONFIG = Config(T=4, K=8)
BOTH: tuple[DistanceMethod, ...] = ("knn", "mahalanobis")
Tensors = dict[str, NDArray[Any]]


@pytest.fixture(scope="module")
def knn(walkers: list[Clip]) -> DistanceDetector:
    return DistanceDetector.fit("knn", walkers[:2], CONFIG)


@pytest.fixture(scope="module")
def mahalanobis(walkers: list[Clip]) -> DistanceDetector:
    return DistanceDetector.fit("mahalanobis", walkers[:2], CONFIG)


def windows_of(clips: list[Clip]) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """All windows flattened, `(N, D)`, and their confidences."""
    parts = [cut(clip, [ViewSettings(CONFIG)], STEP18)[0].windows(slice(None)) for clip in clips]
    x = np.concatenate([part.x.reshape(len(part), -1) for part in parts]).astype(np.float64)
    return x, np.concatenate([part.c for part in parts])


def small(
    method: DistanceMethod, points: object = None, *, k: int = 1, confidence: bool = True
) -> DistanceDetector:
    """One joint in one frame, so a window is (x, y): π(x) = ((x - 1) / 2, (y - 5) / 3)."""
    space = PCSpace(
        np.array([1, 5], np.float32), np.eye(2, dtype=np.float32), np.array([4, 9], np.float32)
    )
    neighbours = None if points is None else Neighbours(np.asarray(points, np.float32), k)
    config = Config(T=1, K=2, L=1, confidence=confidence)
    origin = Origin("0", "", 1, 3, 0, Repairs())
    return DistanceDetector(method, config, of_size(1), space, neighbours, origin)


def two_windows() -> Windows:
    """π(x) = (3, 4) with confidence 0.5, and π(x) = (0, 0) with confidence 1."""
    x = np.array([[7, 17], [1, 5]], np.float32).reshape(2, 2, 1, 1)
    numbers = np.arange(2)
    c = np.array([0.5, 1], np.float32)
    return Windows(x, c, numbers, numbers, np.zeros(2, np.bool_))


def test_knn_scores_the_confidence_times_the_distance_to_the_nearest_point() -> None:
    scores = small("knn", [[3, 0], [0, 1], [9, 9]]).score_windows(two_windows())
    np.testing.assert_allclose(scores.E, [[4], [1]], rtol=1e-6)  # to (3, 0), to (0, 1)
    np.testing.assert_allclose(scores.A, [2, 1], rtol=1e-6)


def test_knn_averages_the_distances_to_its_neighbours() -> None:
    scores = small("knn", [[3, 0], [0, 1], [9, 9]], k=2).score_windows(two_windows())
    # from (3, 4) they are at 4, √18 and √61; from (0, 0) at 3, 1 and √162
    np.testing.assert_allclose(scores.A, [(np.sqrt(18) + 4) / 2 / 2, 2], rtol=1e-6)


def test_mahalanobis_scores_the_confidence_times_the_distance_in_standard_deviations() -> None:
    scores = small("mahalanobis").score_windows(two_windows())
    np.testing.assert_allclose(scores.E, [[5], [0]])
    np.testing.assert_allclose(scores.A, [2.5, 0])


@pytest.mark.parametrize(("method", "points"), [("knn", [[0, 0]]), ("mahalanobis", None)])
def test_without_confidence_the_score_is_the_distance(
    method: DistanceMethod, points: object
) -> None:
    scores = small(method, points, confidence=False).score_windows(two_windows())
    np.testing.assert_allclose(scores.A, [5, 0])
    np.testing.assert_array_equal(scores.c, [0.5, 1])


def test_mahalanobis_is_the_covariances_pseudo_inverse_on_the_top_components(
    mahalanobis: DistanceDetector, walkers: list[Clip]
) -> None:
    train, _ = windows_of(walkers[:2])
    centred = train - train.mean(axis=0)
    Lambda, W = np.linalg.eigh(centred.T @ centred / len(train))
    Lambda_K, W_K = Lambda[-CONFIG.K :], W[:, -CONFIG.K :]
    inverse = (W_K / Lambda_K) @ W_K.T
    x, c = windows_of([walkers[2]])
    away = x - train.mean(axis=0)
    expected = np.sqrt(np.einsum("nd,de,ne->n", away, inverse, away))
    scores = mahalanobis.score(walkers[2])
    np.testing.assert_allclose(scores.windows.E[:, 0], expected, rtol=1e-4)
    np.testing.assert_allclose(scores.A, c * expected, rtol=1e-4)


def test_the_mean_square_of_mahalanobis_over_the_training_windows_is_the_number_of_components(
    mahalanobis: DistanceDetector, walkers: list[Clip]
) -> None:
    E = np.concatenate([mahalanobis.score(clip).windows.E for clip in walkers[:2]])
    assert np.square(E).mean() == pytest.approx(CONFIG.K, rel=1e-4)
    assert mahalanobis.neighbours is None


def test_mahalanobis_whitens_whatever_the_settings_say(
    mahalanobis: DistanceDetector, walkers: list[Clip]
) -> None:
    same = DistanceDetector.fit(
        "mahalanobis", walkers[:2], replace(CONFIG, reference=Reference(whitening=0.0))
    )
    assert same.config.reference.whitening == 1
    np.testing.assert_array_equal(same.score(walkers[2]).A, mahalanobis.score(walkers[2]).A)


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("k", [1, 3])
def test_knn_searches_all_training_windows(
    walkers: list[Clip], k: int, whiten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepvad.model.footage.BATCH", 100)
    detector = DistanceDetector.fit(
        "knn", walkers[:2], replace(CONFIG, reference=Reference(whitening=float(whiten))), k=k
    )
    train, _ = windows_of(walkers[:2])
    centred = train - train.mean(axis=0)
    Lambda, W = np.linalg.eigh(centred.T @ centred / len(train))
    scale = np.sqrt(Lambda[-CONFIG.K :]) if whiten else 1.0
    x, c = windows_of([walkers[2]])
    points, queries = (
        (rows - train.mean(axis=0)) @ W[:, -CONFIG.K :] / scale for rows in (train, x[:50])
    )
    apart = np.sort(np.linalg.norm(queries[:, None] - points, axis=2), axis=1)
    expected = c[:50] * apart[:, :k].mean(axis=1)
    np.testing.assert_allclose(detector.score(walkers[2]).A[:50], expected, rtol=1e-3)
    assert detector.neighbours is not None
    assert detector.neighbours.points.shape == (len(train), CONFIG.K)


def test_a_training_window_is_its_own_neighbour(knn: DistanceDetector, walkers: list[Clip]) -> None:
    assert not knn.score(walkers[0]).A.any()
    assert (knn.score(walkers[2]).A > 0).all()


def test_knn_on_raw_coordinates_measures_between_windows_themselves(walkers: list[Clip]) -> None:
    raw = DistanceDetector.fit(
        "knn", walkers[:1], replace(CONFIG, reference=Reference(projection="raw"))
    )
    train, _ = windows_of(walkers[:1])
    x, c = windows_of([walkers[2]])
    nearest = np.linalg.norm(x[:20, None] - train, axis=2).min(axis=1)
    np.testing.assert_allclose(raw.score(walkers[2]).A[:20], c[:20] * nearest, rtol=1e-5)
    assert raw.config.K == 2 * 18 * 4


def test_what_the_settings_say_of_noise_scales_does_not_matter(walkers: list[Clip]) -> None:
    config = replace(CONFIG, L=7, aggregation="sum")
    detector = DistanceDetector.fit("mahalanobis", walkers[:1], config)
    assert (detector.config.L, detector.config.aggregation) == (1, "max")
    assert detector.score(walkers[0]).windows.E.shape[1] == 1


@pytest.mark.parametrize("k", [0, -1, 10**6])
def test_a_number_of_neighbours_that_is_not_there_is_refused(walkers: list[Clip], k: int) -> None:
    n_windows = len(windows_of(walkers[:1])[0])
    with pytest.raises(DataError, match=f"k: expected a number from 1 to {n_windows}, .* got {k}"):
        DistanceDetector.fit("knn", walkers[:1], CONFIG, k=k)


def test_methods_that_are_no_distances_are_refused(walkers: list[Clip]) -> None:
    with pytest.raises(ConfigError, match="expected 'knn' or 'mahalanobis', got 'step'"):
        DistanceDetector.fit("step", walkers, CONFIG)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ConfigError, match="expected one that whitens, for mahalanobis, got 'raw'"):
        DistanceDetector.fit(
            "mahalanobis", walkers, replace(CONFIG, reference=Reference(projection="raw"))
        )


def test_footage_without_windows_is_refused_and_clips_without_windows_have_no_scores(
    knn: DistanceDetector, mahalanobis: DistanceDetector
) -> None:
    empty = Clip("nobody", None, 9, ())
    for detector in (knn, mahalanobis):
        scores = detector.score(empty)
        assert scores.windows.E.shape == (0, 1)
        assert np.isnan(scores.frames).all()
        with pytest.raises(DataError, match="at least one track of 4 consecutive frames"):
            DistanceDetector.fit(detector.method, [empty], CONFIG)


def test_windows_cut_for_another_detector_are_refused(
    knn: DistanceDetector, walkers: list[Clip]
) -> None:
    index, _ = cut(walkers[0], [ViewSettings(replace(CONFIG, T=5))], STEP18)
    with pytest.raises(DataError, match=r"expected x of shape \(N, 2, 18, 4\), got \(3, 2, 18, 5"):
        knn.score_windows(index.windows(slice(0, 3)))


def test_scores_of_a_long_clip_do_not_depend_on_the_batches(
    knn: DistanceDetector, walkers: list[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = knn.score(walkers[2])
    monkeypatch.setattr("stepvad.model.footage.BATCH", 7)
    np.testing.assert_allclose(knn.score(walkers[2]).A, whole.A, rtol=1e-5)


def test_a_distance_can_be_evaluated_like_any_detector(walker_dataset: Path) -> None:
    dataset = open_dataset(walker_dataset)
    config = Config(K=24)
    for method in BOTH:
        scorer: Scorer = DistanceDetector.fit(method, dataset.train_clips(), config)
        result = evaluate(scorer, dataset, placements=["latest"])
        assert result.row().auroc > 0.6
        again = evaluate(scorer, dataset, placements=["latest"], aggregation="sum")
        assert again.row() == result.row()  # one number has nothing to be aggregated with


@pytest.mark.parametrize("method", BOTH)
def test_a_loaded_distance_scores_to_the_bit_like_the_fitted_one(
    walkers: list[Clip], tmp_path: Path, method: DistanceMethod
) -> None:
    fitted = DistanceDetector.fit(method, walkers[:1], CONFIG, k=2)
    for name in "ab":
        fitted.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    loaded = baselines.load(tmp_path / "a")
    assert isinstance(loaded, DistanceDetector)
    assert (loaded.method, loaded.config, loaded.skeleton, loaded.origin) == (
        fitted.method,
        fitted.config,
        fitted.skeleton,
        fitted.origin,
    )
    assert loaded.score(walkers[2]).A.tobytes() == fitted.score(walkers[2]).A.tobytes()
    if loaded.neighbours is not None:
        assert loaded.neighbours.k == 2


def test_a_detector_refuses_the_file_of_a_distance_and_says_who_reads_it(
    knn: DistanceDetector, tmp_path: Path
) -> None:
    knn.save(tmp_path / "m")
    with pytest.raises(ModelFileError, match="score matching, got one of method 'knn'") as error:
        Detector.load(tmp_path / "m")
    assert "stepvad.evaluation.baselines.load" in error.value.hint


BROKEN: dict[str, tuple[Callable[[Tensors, dict[str, Any]], object], str]] = {
    "no points": (lambda t, m: t.pop("points"), "'points' is missing"),
    "short points": (lambda t, m: t.update(points=t["points"][1:]), "tensor points must be float"),
    "flat points": (lambda t, m: t.update(points=t["points"][0]), "tensor points must be float32"),
    "wide points": (lambda t, m: t.update(points=t["points"].astype(float)), "got float64"),
    "points of NaN": (lambda t, m: t["points"].fill(np.nan), "tensor points must be finite"),
    "no neighbours": (lambda t, m: m.update(k=0), "k is 0"),
    "too many neighbours": (lambda t, m: m.update(k=10**9), "k is 1000000000"),
    "k as truth": (lambda t, m: m.update(k=True), "k is True"),
    "k as words": (lambda t, m: m.update(k="one"), "k is 'one'"),
    "no k": (lambda t, m: m.pop("k"), "'k' is missing"),
    "unknown method": (lambda t, m: m.update(method="wings"), "got 'wings'"),
    "method as list": (lambda t, m: m.update(method=["knn"]), "got ['knn']"),
    "score matching": (lambda t, m: m.update(method="step"), "got 'step'"),
    "no points at all": (
        lambda t, m: (m["origin"].update(windows=0), t.update(points=t["points"][:0])),
        "k is 1",
    ),
    "several scales": (lambda t, m: m["views"][0].update(L=3), "not those of knn"),
    "no whitening": (
        lambda t, m: (
            m.update(method="mahalanobis"),
            m["views"][0]["reference"].update(whitening=0),
        ),
        "not those of mahalanobis",
    ),
    "raw": (
        lambda t, m: (
            m.update(method="mahalanobis"),
            m["views"][0]["reference"].update(projection="raw"),
        ),
        "expected one that whitens",
    ),
    "no mean": (lambda t, m: t.pop("mu"), "'mu' is missing"),
    "eigenvalue 0": (lambda t, m: t["Lambda_K"].fill(0), "tensor Lambda_K must be positive"),
    "newer format": (lambda t, m: m.update(format=99), "expected format 3, got 99"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_file_that_is_not_whole_is_refused(
    knn: DistanceDetector, tmp_path: Path, fault: str
) -> None:
    path = tmp_path / "knn.safetensors"
    knn.save(path)
    tensors, meta, _ = read_with_digest(path)
    tensors = {name: value.copy() for name, value in tensors.items()}
    spoil, message = BROKEN[fault]
    spoil(tensors, meta)
    write_tensors(tensors, meta, path)
    with pytest.raises(ModelFileError) as error:
        baselines.load(path)
    assert message in error.value.problem
    assert str(path) in error.value.problem
    assert error.value.hint


@pytest.mark.parametrize("method", BOTH)
def test_a_flipped_byte_gives_finite_scores_or_a_clear_error(
    tmp_path: Path, method: DistanceMethod
) -> None:
    rng = np.random.default_rng(0)
    walk = 100 + rng.normal(size=(60, 3, 2)).cumsum(axis=0).astype(np.float32)
    track = Track(0, np.arange(60), walk, np.full((60, 3), 0.9, np.float32))
    clip = Clip("walk", None, 60, (track,), of_size(3))
    path = tmp_path / "m"
    DistanceDetector.fit(method, [clip], Config(T=2, K=4)).save(path)
    whole = path.read_bytes()
    for at in rng.integers(0, len(whole), 400):
        path.write_bytes(whole[:at] + bytes([rng.integers(256)]) + whole[at + 1 :])
        with contextlib.suppress(StepvadError):
            assert np.isfinite(baselines.load(path).score(clip).A).all()


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # importing it fails, as where it is not installed
from stepvad import Config, read_clip
from stepvad.evaluation import baselines
clip = read_clip(sys.argv[1])
fitted = baselines.fit("knn", [clip], Config(T=4, K=8))
print(fitted.score(clip).A.max())
"""


def test_a_distance_needs_no_torch(walkers: list[Clip], tmp_path: Path) -> None:
    from stepvad import write_clip

    write_clip(walkers[0], tmp_path / "c.json")
    command = [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path / "c.json")]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert run.stdout == "0.0\n"
