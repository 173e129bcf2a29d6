"""The projection learned from footage: what it learns from, and what never sees more than that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.config import Checkpoint, Config, Projection, Reference
from stepvad.detector import Detector
from stepvad.errors import DataError, ModelFileError, Progress
from stepvad.formats.labels import FrameLabels
from stepvad.model import footage, training
from stepvad.model.engines import weight_shapes
from stepvad.model.footage import KEPT_BYTES, Footage, Projected, fit_space, resolve
from stepvad.model.modelfile import space_tensors
from stepvad.model.pcspace import PCSpace
from stepvad.model.training import TrainingSet
from stepvad.poses import Clip, Track
from stepvad.skeletons import STEP18, of_size
from stepvad.windows.runs import cut
from stepvad.windows.views import ViewSettings

CONFIG = Config(T=3, K=5, width=8, sigma_width=4, blocks=2, L=3, max_steps=6, batch_size=64)


@pytest.fixture(scope="module")
def strange(walker_test: list[tuple[Clip, FrameLabels]]) -> list[Clip]:
    """Clips that show anomalies, for the projection alone."""
    return [clip for clip, _ in walker_test]


def windows_of(*clips: Clip) -> NDArray[np.float32]:
    """All windows of some clips, `(N, 2, V, T)`."""
    return np.concatenate(
        [cut(clip, [ViewSettings(CONFIG)], STEP18)[0].windows(slice(None)).x for clip in clips]
    )


def same(a: PCSpace, b: PCSpace) -> bool:
    one, other = space_tensors(a), space_tensors(b)
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


def test_only_raw_coordinates_decide_how_many_components_there_are() -> None:
    assert resolve(CONFIG, STEP18) == CONFIG
    raw = resolve(replace(CONFIG, reference=Reference(projection="raw")), STEP18)
    assert raw == replace(CONFIG, reference=Reference(projection="raw"), K=2 * 18 * 3)
    four = resolve(replace(CONFIG, reference=Reference(projection="raw"), T=5), of_size(4))
    assert four.K == 2 * 4 * 5


@pytest.mark.parametrize("whiten", [True, False])
def test_whitened_components_have_identity_covariance_over_all_windows_learned_from(
    walkers: list[Clip], strange: list[Clip], whiten: bool
) -> None:
    config = replace(CONFIG, reference=Reference(whitening=float(whiten)), max_steps=40)
    parts = [
        Footage.from_clips(clips, [ViewSettings(config)]) for clips in (walkers[:1], strange[:1])
    ]
    space = fit_space(parts, config)
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
    parts = [
        Footage.from_clips(clips, [ViewSettings(CONFIG)]) for clips in (walkers[:2], strange[:1])
    ]
    together = [Footage.from_clips([*walkers[:2], *strange[:1]], [ViewSettings(CONFIG)])]
    a, b = fit_space(parts, CONFIG), fit_space(together, CONFIG)
    assert isinstance(a, PCSpace)
    assert isinstance(b, PCSpace)
    np.testing.assert_allclose(a.W_K, b.W_K, atol=1e-5)
    np.testing.assert_allclose(a.Lambda_K, b.Lambda_K, rtol=1e-5)


def test_clips_for_the_projection_alone_change_it(walkers: list[Clip], strange: list[Clip]) -> None:
    config = CONFIG
    plain = Detector.fit(walkers[:1], config)
    wider = Detector.fit(walkers[:1], config, projection_clips=strange)
    assert not same(plain.model.space, wider.model.space)
    assert wider.origin == plain.origin  # what it calls normal is the same


def test_raw_coordinates_have_nothing_to_learn_from_more_clips(
    walkers: list[Clip], strange: list[Clip]
) -> None:
    config = replace(CONFIG, reference=Reference(projection="raw"), network="vanilla")
    plain = Detector.fit(walkers[:1], config)
    wider = Detector.fit(walkers[:1], config, projection_clips=strange)
    assert same(plain.model.space, wider.model.space)
    np.testing.assert_array_equal(plain.score(strange[0]).A, wider.score(strange[0]).A)


def test_the_energy_model_is_trained_on_the_normal_clips_alone(
    walkers: list[Clip],
    strange: list[Clip],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sets: list[TrainingSet] = []

    def recording(data: TrainingSet, config: Config, **_: object) -> tuple[object, int]:
        sets.append(data)
        rng = np.random.default_rng(0)
        shapes = weight_shapes(config).items()
        return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes}, 1

    monkeypatch.setattr(training, "train", recording)
    config = CONFIG
    detector = Detector.fit(walkers[:2], config, projection_clips=strange)
    (data,) = sets
    x = windows_of(*walkers[:2])
    assert data.n_windows == len(x) == detector.origin.windows
    assert detector.origin.clips == 2
    pi_x, _ = data.batch(np.arange(len(x)))
    np.testing.assert_array_equal(pi_x, detector.model.space.project(x))
    energies = np.concatenate(
        [
            detector.views[0].energies(
                cut(clip, [ViewSettings(config)], STEP18)[0].windows(slice(None))
            )
            for clip in walkers[:2]
        ]
    ).astype(np.float64)
    np.testing.assert_allclose(detector.model.energy.E_mean, energies.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(detector.model.energy.E_var, energies.var(axis=0), rtol=1e-4)


@pytest.mark.parametrize("kept", [True, False])
def test_confidence_weighs_the_training_windows_unless_it_is_switched_off(
    walkers: list[Clip], kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footage, "KEPT_BYTES", KEPT_BYTES if kept else 0)
    weights = {}
    for confidence in (True, False):
        config = replace(CONFIG, confidence=confidence)
        seen = Footage.from_clips(walkers[:1], [ViewSettings(config)])
        space = fit_space([seen], config)
        windows = Projected.from_footage(seen, space, config)
        assert (windows.kept is not None) == kept
        weights[confidence] = windows.batch(slice(0, 50))[1]
    c = cut(walkers[0], [ViewSettings(CONFIG)], STEP18)[0].windows(slice(0, 50)).c
    assert c.std() > 0
    np.testing.assert_array_equal(weights[True], c)
    np.testing.assert_array_equal(weights[False], np.ones(50))


def test_a_checkpoint_of_other_projection_clips_is_not_resumed(
    walkers: list[Clip], strange: list[Clip], tmp_path: Path
) -> None:
    config = replace(CONFIG, max_steps=None, epochs=2)
    Detector.fit(
        walkers[:1],
        config,
        projection_clips=strange[:1],
        checkpoint=Checkpoint(tmp_path / "checkpoint"),
    )
    for other in (None, strange[1:2]):
        with pytest.raises(ModelFileError, match="checkpoint"):
            Detector.fit(
                walkers[:1],
                config,
                projection_clips=other,
                checkpoint=Checkpoint(tmp_path / "checkpoint", resume=True),
            )
    Detector.fit(
        walkers[:1],
        config,
        projection_clips=strange[:1],
        checkpoint=Checkpoint(tmp_path / "checkpoint", resume=True),
    )


def walk(n_frames: int, V: int = 4) -> Clip:
    rng = np.random.default_rng(0)
    keypoints = rng.standard_normal((n_frames, V, 2)).cumsum(axis=0).astype(np.float32)
    track = Track(0, np.arange(n_frames), keypoints, np.ones((n_frames, V), np.float32))
    return Clip("walk", None, n_frames, (track,), of_size(V))


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
    ],
)
def test_fitting_a_projection_reports_its_stages(
    walkers: list[Clip], kind: Projection, stages: list[str]
) -> None:
    reports: dict[str, Progress] = {}
    config = replace(CONFIG, reference=Reference(projection=kind))
    fit_space(
        [Footage.from_clips(walkers[:1], [ViewSettings(config)])],
        config,
        lambda p: reports.update({p.stage: p}),
    )
    assert list(reports) == stages
    assert all(report.done == report.total for report in reports.values())
