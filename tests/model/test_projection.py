"""The projection learned from footage: what it learns from, and what never sees more than that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.config import Config, Projection
from stepvad.detector import Detector
from stepvad.errors import ConfigError, DataError, ModelFileError
from stepvad.formats.labels import FrameLabels
from stepvad.model import autoencoder, projection, training
from stepvad.model.encoder import Encoder
from stepvad.model.folded import weight_shapes
from stepvad.model.footage import Footage
from stepvad.model.modelfile import Space, space_tensors
from stepvad.model.pcspace import PCSpace
from stepvad.model.projection import Projected
from stepvad.model.training import TrainingSet
from stepvad.poses import Clip, Track
from stepvad.progress import Progress, silent
from stepvad.skeletons import STEP18, of_size
from stepvad.windows import cut

CONFIG = Config(T=3, K=5, width=8, sigma_width=4, blocks=2, L=3, max_steps=6, batch_size=64)
LEARNED: tuple[Projection, ...] = ("pca", "autoencoder", "vae")
ENCODERS: tuple[Projection, ...] = ("autoencoder", "vae")


@pytest.fixture(scope="module")
def strange(walker_test: list[tuple[Clip, FrameLabels]]) -> list[Clip]:
    """Clips that show anomalies, for the projection alone."""
    return [clip for clip, _ in walker_test]


def windows_of(*clips: Clip) -> NDArray[np.float32]:
    """All windows of some clips, `(N, 2, V, T)`."""
    return np.concatenate([cut(clip, CONFIG, STEP18)[0].windows(slice(None)).x for clip in clips])


def same(a: Space, b: Space) -> bool:
    one, other = space_tensors(a), space_tensors(b)
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


def test_only_raw_coordinates_decide_how_many_components_there_are() -> None:
    for kind in LEARNED:
        config = replace(CONFIG, projection=kind)
        assert projection.resolve(config, STEP18) == config
    raw = projection.resolve(replace(CONFIG, projection="raw"), STEP18)
    assert raw == replace(CONFIG, projection="raw", K=2 * 18 * 3)
    four = projection.resolve(replace(CONFIG, projection="raw", T=5), of_size(4))
    assert four.K == 2 * 4 * 5


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("kind", LEARNED)
def test_whitened_components_have_identity_covariance_over_all_windows_learned_from(
    walkers: list[Clip], strange: list[Clip], kind: Projection, whiten: bool
) -> None:
    config = replace(CONFIG, projection=kind, whiten=whiten, max_steps=40)
    parts = [Footage.read(clips, config) for clips in (walkers[:1], strange[:1])]
    space = projection.fit_space(parts, config)
    pi_x = space.project(windows_of(walkers[0], strange[0])).astype(np.float64)
    covariance = np.cov(pi_x.T, bias=True)
    if whiten:
        np.testing.assert_allclose(pi_x.mean(axis=0), 0, atol=1e-3)
        np.testing.assert_allclose(covariance, np.eye(CONFIG.K), atol=2e-3)
    else:
        assert np.abs(covariance - np.eye(CONFIG.K)).max() > 0.05


def test_components_of_two_footages_are_those_of_all_their_clips(
    walkers: list[Clip], strange: list[Clip]
) -> None:
    parts = [Footage.read(clips, CONFIG) for clips in (walkers[:2], strange[:1])]
    together = [Footage.read([*walkers[:2], *strange[:1]], CONFIG)]
    a, b = projection.fit_space(parts, CONFIG), projection.fit_space(together, CONFIG)
    assert isinstance(a, PCSpace)
    assert isinstance(b, PCSpace)
    np.testing.assert_allclose(a.W_K, b.W_K, atol=1e-5)
    np.testing.assert_allclose(a.Lambda_K, b.Lambda_K, rtol=1e-5)


def test_an_autoencoder_is_shown_the_windows_of_all_parts_by_their_number(
    walkers: list[Clip], strange: list[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[NDArray[np.float32]] = []
    x = windows_of(walkers[0], strange[0])
    n_normal, D = len(windows_of(walkers[0])), x[0].size
    rows = np.array([0, 5, n_normal - 1, n_normal, n_normal + 7, len(x) - 1])

    def recording(
        batch: Callable[[NDArray[np.int64]], NDArray[np.float32]],
        n_windows: int,
        numbers: int,
        config: Config,
        report: object,
        device: str,
    ) -> Encoder:
        assert (n_windows, numbers, device) == (len(x), D, "cpu")
        shown.extend([batch(rows), batch(rows[:2]), batch(rows[4:])])
        return autoencoder.Autoencoder(D, config.K, variational=False).eval().encoder()

    monkeypatch.setattr(autoencoder, "train", recording)
    config = replace(CONFIG, projection="autoencoder")
    parts = [Footage.read(clips, config) for clips in (walkers[:1], strange[:1])]
    projection.fit_space(parts, config)
    for got, wanted in zip(shown, (rows, rows[:2], rows[4:]), strict=True):
        np.testing.assert_array_equal(got, x[wanted].reshape(len(wanted), D))


@pytest.mark.parametrize("kind", LEARNED)
def test_clips_for_the_projection_alone_change_it(
    walkers: list[Clip], strange: list[Clip], kind: Projection
) -> None:
    config = replace(CONFIG, projection=kind)
    plain = Detector.fit(walkers[:1], config)
    wider = Detector.fit(walkers[:1], config, projection_clips=strange)
    assert not same(plain.model.space, wider.model.space)
    assert wider.origin == plain.origin  # what it calls normal is the same


def test_raw_coordinates_have_nothing_to_learn_from_more_clips(
    walkers: list[Clip], strange: list[Clip]
) -> None:
    config = replace(CONFIG, projection="raw", network="vanilla")
    plain = Detector.fit(walkers[:1], config)
    wider = Detector.fit(walkers[:1], config, projection_clips=strange)
    assert same(plain.model.space, wider.model.space)
    np.testing.assert_array_equal(plain.score(strange[0]).A, wider.score(strange[0]).A)


@pytest.mark.parametrize("kind", LEARNED)
def test_the_energy_model_is_trained_on_the_normal_clips_alone(
    walkers: list[Clip],
    strange: list[Clip],
    kind: Projection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sets: list[TrainingSet] = []

    def recording(data: TrainingSet, config: Config, **_: object) -> tuple[object, int]:
        sets.append(data)
        rng = np.random.default_rng(0)
        shapes = weight_shapes(config).items()
        return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes}, 1

    monkeypatch.setattr(training, "train", recording)
    config = replace(CONFIG, projection=kind)
    detector = Detector.fit(walkers[:2], config, projection_clips=strange)
    (data,) = sets
    x = windows_of(*walkers[:2])
    assert data.n_windows == len(x) == detector.origin.windows
    assert detector.origin.clips == 2
    pi_x, _ = data.batch(np.arange(len(x)))
    np.testing.assert_array_equal(pi_x, detector.model.space.project(x))
    energies = np.concatenate(
        [
            detector.energies(cut(clip, config, STEP18)[0].windows(slice(None)))
            for clip in walkers[:2]
        ]
    ).astype(np.float64)
    np.testing.assert_allclose(detector.model.E_mean, energies.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(detector.model.E_var, energies.var(axis=0), rtol=1e-4)


@pytest.mark.parametrize("kept", [True, False])
def test_confidence_weighs_the_training_windows_unless_it_is_switched_off(
    walkers: list[Clip], kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection, "KEPT_BYTES", projection.KEPT_BYTES if kept else 0)
    weights = {}
    for confidence in (True, False):
        config = replace(CONFIG, confidence=confidence)
        footage = Footage.read(walkers[:1], config)
        space = projection.fit_space([footage], config)
        windows = Projected.of(footage, space, config)
        assert (windows.kept is not None) == kept
        weights[confidence] = windows.batch(slice(0, 50))[1]
    c = cut(walkers[0], CONFIG, STEP18)[0].windows(slice(0, 50)).c
    assert c.std() > 0
    np.testing.assert_array_equal(weights[True], c)
    np.testing.assert_array_equal(weights[False], np.ones(50))


def test_a_checkpoint_of_other_projection_clips_is_not_resumed(
    walkers: list[Clip], strange: list[Clip], tmp_path: Path
) -> None:
    config = replace(CONFIG, max_steps=None, epochs=2)
    Detector.fit(
        walkers[:1], config, projection_clips=strange[:1], checkpoint=tmp_path / "checkpoint"
    )
    for other in (None, strange[1:2]):
        with pytest.raises(ModelFileError, match="checkpoint"):
            Detector.fit(
                walkers[:1],
                config,
                projection_clips=other,
                checkpoint=tmp_path / "checkpoint",
                resume=True,
            )
    Detector.fit(
        walkers[:1],
        config,
        projection_clips=strange[:1],
        checkpoint=tmp_path / "checkpoint",
        resume=True,
    )


def walk(n_frames: int, V: int = 4) -> Clip:
    rng = np.random.default_rng(0)
    keypoints = rng.standard_normal((n_frames, V, 2)).cumsum(axis=0).astype(np.float32)
    track = Track(0, np.arange(n_frames), keypoints, np.ones((n_frames, V), np.float32))
    return Clip("walk", None, n_frames, (track,), of_size(V))


@pytest.mark.parametrize("kind", ENCODERS)
def test_too_few_windows_for_an_encoder_are_refused(kind: Projection) -> None:
    config = replace(CONFIG, projection=kind, T=4, K=12)
    with pytest.raises(DataError, match="expected more than K = 12 windows, got 12") as error:
        Detector.fit([walk(15)], config)
    assert error.value.hint == "choose a smaller K or fit on more footage"
    assert len(Detector.fit([walk(40)], replace(config, K=4)).score(walk(40)).A) == 37


@pytest.mark.parametrize("kind", ENCODERS)
def test_batches_of_one_window_cannot_be_normalised(kind: Projection) -> None:
    config = replace(CONFIG, projection=kind, batch_size=1)
    with pytest.raises(ConfigError, match="batch_size: expected at least 2 for an autoencoder"):
        Detector.fit([walk(40)], config)


def test_clips_for_the_projection_must_show_the_same_joints(walkers: list[Clip]) -> None:
    with pytest.raises(DataError, match=r"expected poses of skeleton step18 .*, got joints4"):
        Detector.fit(walkers[:1], CONFIG, projection_clips=[walk(40)])
    with pytest.raises(DataError, match="at least one track of 3 consecutive frames"):
        Detector.fit(walkers[:1], CONFIG, projection_clips=[])


@pytest.mark.parametrize(
    ("kind", "stages"),
    [
        ("pca", ["components"]),
        ("raw", []),
        ("autoencoder", ["projection", "latents"]),
        ("vae", ["projection", "latents"]),
    ],
)
def test_fitting_a_projection_reports_its_stages(
    walkers: list[Clip], kind: Projection, stages: list[str]
) -> None:
    reports: dict[str, Progress] = {}
    config = replace(CONFIG, projection=kind)
    projection.fit_space(
        [Footage.read(walkers[:1], config)], config, lambda p: reports.update({p.stage: p})
    )
    assert list(reports) == stages
    assert all(report.done == report.total for report in reports.values())


def test_a_projection_reads_nothing_but_the_seed_and_the_windows(walkers: list[Clip]) -> None:
    config = replace(CONFIG, projection="vae")
    footage = [Footage.read(walkers[:1], config)]
    first, again = (projection.fit_space(footage, config, silent) for _ in range(2))
    other = projection.fit_space(footage, replace(config, seed=1), silent)
    assert same(first, again)
    assert not same(first, other)
