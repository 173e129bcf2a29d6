from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad import Clip, Config, Detector, Track
from stepvad.config import Compute, Reference, Runtime
from stepvad.errors import ConfigError, DataError, MissingExtraError, Progress
from stepvad.formats.labels import FrameLabels
from stepvad.model.engines import weight_shapes
from stepvad.model.pcspace import PCSpace
from stepvad.skeletons import STEP18, Skeleton, of_size
from stepvad.windows.runs import cut
from stepvad.windows.views import ViewSettings
from tests.tracks import with_config

CONFIG = Config(T=4, K=8, width=24, sigma_width=8, blocks=2, L=5, max_steps=30, ema_warmup=True)


@pytest.fixture(scope="module")
def detector(walkers: list[Clip]) -> Detector:
    return Detector.fit(walkers, CONFIG)


def clip_of(keypoints: object, *, frames: object = None, V: int = 17, name: str = "c") -> Clip:
    values = np.asarray(keypoints, dtype=np.float32)
    numbers = np.arange(len(values)) if frames is None else np.asarray(frames)
    track = Track(3, numbers, values, np.ones((len(values), V), np.float32))
    return Clip(name, None, int(numbers[-1]) + 1 if len(numbers) else 0, (track,), of_size(V))


def test_energies_of_the_training_windows_have_mean_0_and_variance_1_at_every_scale(
    detector: Detector, walkers: list[Clip]
) -> None:
    E = np.concatenate([detector.score(clip).windows.E for clip in walkers]).astype(np.float64)
    np.testing.assert_allclose(E.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(E.var(axis=0), 1, atol=1e-4)


def test_a_score_is_the_confidence_times_the_largest_energy(
    detector: Detector, walkers: list[Clip]
) -> None:
    windows = detector.score(walkers[0]).windows
    np.testing.assert_allclose(windows.A, windows.c * windows.E.max(axis=1), rtol=1e-6)
    assert (windows.c < 1).all()


def test_without_confidence_neither_loss_nor_score_is_weighted(walkers: list[Clip]) -> None:
    blind = Detector.fit(walkers, replace(CONFIG, confidence=False))
    weighted = Detector.fit(walkers, CONFIG)
    windows = blind.score(walkers[0]).windows
    np.testing.assert_array_equal(windows.A, windows.E.max(axis=1))
    assert not np.array_equal(
        blind.model.energy.weights["head.weight"], weighted.model.energy.weights["head.weight"]
    )


def test_people_who_run_or_fall_score_higher(
    walkers: list[Clip], walker_test: list[tuple[Clip, FrameLabels]]
) -> None:
    detector = Detector.fit(walkers, replace(CONFIG, T=12, K=24, width=64, max_steps=150))
    normal, abnormal = [], []
    for clip, labels in walker_test:
        frames = detector.score(clip).frames
        scored = ~np.isnan(frames)
        normal.append(frames[scored & ~labels.abnormal])
        abnormal.append(frames[scored & labels.abnormal])
    assert np.median(np.concatenate(abnormal)) > np.quantile(np.concatenate(normal), 0.9)


def test_scores_of_a_long_clip_do_not_depend_on_the_batches(
    detector: Detector, walkers: list[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = detector.score(walkers[0])
    monkeypatch.setattr("stepvad.model.footage.BATCH", 7)
    monkeypatch.setattr("stepvad.windows.runs.PIECE", 50)
    reports: list[Progress] = []
    parts = detector.score(walkers[0], report=reports.append)
    np.testing.assert_allclose(parts.A, whole.A, atol=1e-5)
    assert len(reports) > 5
    assert reports[-1].done == reports[-1].total == walkers[0].n_poses


def test_a_clip_without_windows_has_no_scores(detector: Detector) -> None:
    empty = Clip("empty", None, 9, ())
    short = clip_of(np.random.default_rng(0).uniform(0, 99, (3, 17, 2)))
    for clip in (empty, short):
        scores = detector.score(clip)
        assert len(scores.A) == 0
        assert scores.windows.E.shape == (0, 5)
        assert np.isnan(scores.frames).all()
    assert detector.score(short).counts.short_runs == 1


def test_flat_windows_are_counted_and_have_finite_scores(detector: Detector) -> None:
    frozen = detector.score(clip_of(np.zeros((10, 17, 2)) + 5))
    line = np.zeros((10, 17, 2))
    line[:, :, 0] = np.arange(17)
    lying = detector.score(clip_of(line))
    for scores in (frozen, lying):
        assert scores.flat_windows == len(scores.A) == 7
        assert np.isfinite(scores.A).all()


def test_inputs_are_never_modified(detector: Detector, walkers: list[Clip]) -> None:
    before = [clip.digest() for clip in walkers]
    detector.score(walkers[0])
    assert [clip.digest() for clip in walkers] == before


def test_footage_without_a_whole_window_is_refused() -> None:
    with pytest.raises(DataError, match="at least one track of 12 consecutive frames"):
        Detector.fit([clip_of(np.zeros((11, 17, 2)))])
    with pytest.raises(DataError, match="got none in 0 clips"):
        Detector.fit([])


def test_k_above_the_rank_is_refused_with_the_rank(walkers: list[Clip]) -> None:
    with pytest.raises(DataError, match=r"K: expected at most 1\d\d, the rank of") as error:
        Detector.fit(walkers, replace(CONFIG, K=144))
    assert "smaller K" in error.value.hint


def test_any_skeleton_can_be_modelled_and_others_are_refused(
    detector: Detector, walkers: list[Clip]
) -> None:
    rng = np.random.default_rng(0)
    boxes = clip_of(rng.standard_normal((50, 4, 2)).cumsum(axis=0), V=4)
    four = Detector.fit([boxes], replace(CONFIG, K=6))
    assert four.skeleton.V == 4
    assert len(four.score(boxes).A) == 47
    assert detector.skeleton == STEP18
    with pytest.raises(DataError, match=r"expected poses of skeleton step18 .*, got joints4"):
        detector.score(boxes)
    with pytest.raises(DataError, match="expected poses of skeleton joints4"):
        Detector.fit([boxes, walkers[0]], CONFIG)


def test_eighteen_joints_given_as_such_score_the_same(
    detector: Detector, walkers: list[Clip]
) -> None:
    clip = walkers[0]
    from stepvad.skeletons import COCO17, convert

    tracks = tuple(
        Track(
            t.id,
            t.frames,
            convert(t.keypoints, COCO17, STEP18),
            convert(t.confidence, COCO17, STEP18),
        )
        for t in clip.tracks
    )
    same = Clip(clip.name, clip.fps, clip.n_frames, tracks, STEP18)
    np.testing.assert_allclose(detector.score(same).A, detector.score(clip).A, atol=1e-5)
    renamed = Skeleton("mine", STEP18.joints, STEP18.bones)
    mine = Clip(clip.name, clip.fps, clip.n_frames, tracks, renamed)
    np.testing.assert_array_equal(detector.score(mine).A, detector.score(same).A)


def test_two_fits_of_one_seed_are_one_file(walkers: list[Clip], tmp_path: Path) -> None:
    for name in "ab":
        Detector.fit(iter(walkers), CONFIG).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    moved = clip_of(np.random.default_rng(0).uniform(0, 99, (90, 17, 2)))
    other = Detector.fit([*walkers, moved], CONFIG).origin
    assert other.data_sha256 != Detector.load(tmp_path / "a").origin.data_sha256
    assert other.clips == len(walkers) + 1


def test_the_best_epoch_by_a_callers_own_measure_is_kept(walkers: list[Clip]) -> None:
    rated: list[Detector] = []

    def rate(detector: Detector) -> float:
        rated.append(detector)
        return [0.1, 0.9, 0.3][len(rated) - 1]

    config = replace(CONFIG, max_steps=None, epochs=3)
    best = Detector.fit(walkers, config, keep_best=rate)
    assert len(rated) == 3
    np.testing.assert_array_equal(best.score(walkers[0]).A, rated[1].score(walkers[0]).A)
    assert not np.array_equal(best.score(walkers[0]).A, rated[2].score(walkers[0]).A)


@pytest.mark.parametrize(
    ("runtime", "words"),
    [("openvino-bfloat16", "expected a processor that supports bfloat16"), ("fast", "expected")],
)
def test_a_runtime_that_cannot_score_here_is_refused_before_the_clips_are_read(
    runtime: Runtime, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepvad.model.engines._has_bfloat16", lambda *_: False)
    stages: list[str] = []
    with pytest.raises(ConfigError, match=f"runtime: {words}"):
        Detector.fit(
            iter(()),
            CONFIG,
            compute=Compute(runtime=runtime),
            report=lambda progress: stages.append(progress.stage),
        )
    assert stages == []


def test_fitting_reports_every_stage(walkers: list[Clip]) -> None:
    stages: dict[str, Progress] = {}
    Detector.fit(walkers, CONFIG, report=lambda p: stages.update({p.stage: p}))
    assert list(stages) == ["components", "projecting", "training", "energies"]
    assert all(progress.done == progress.total for progress in stages.values())


def test_windows_too_many_to_keep_are_projected_when_they_are_needed(
    walkers: list[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Detector.fit(walkers, CONFIG)
    monkeypatch.setattr("stepvad.model.footage.KEPT_BYTES", 0)
    stages: set[str] = set()
    cut = Detector.fit(walkers, CONFIG, report=lambda p: stages.add(p.stage))
    assert "projecting" not in stages
    np.testing.assert_allclose(cut.model.energy.E_mean, kept.model.energy.E_mean, rtol=1e-4)
    np.testing.assert_allclose(cut.score(walkers[0]).A, kept.score(walkers[0]).A, atol=1e-3)


def test_a_detector_scores_by_its_own_aggregation(detector: Detector, walkers: list[Clip]) -> None:
    E, c = detector.score(walkers[0]).windows.E, detector.score(walkers[0]).windows.c
    summed, single = (replace(detector.config, aggregation=a) for a in ("sum", 2))
    for config, expected in ((summed, E.sum(axis=1)), (single, E[:, 2])):
        other = with_config(detector, config)
        np.testing.assert_allclose(other.score(walkers[0]).A, c * expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("whiten", [True, False])
def test_a_loaded_detector_scores_to_the_bit_like_the_fitted_one(
    walkers: list[Clip], tmp_path: Path, whiten: bool
) -> None:
    fitted = Detector.fit(
        walkers[:2], replace(CONFIG, reference=Reference(whitening=float(whiten)), max_steps=3)
    )
    assert isinstance(fitted.model.space, PCSpace)
    scale = fitted.model.space.scale
    assert (scale == 1).all() == (not whiten)
    fitted.save(tmp_path / "m")
    loaded = Detector.load(tmp_path / "m")
    now, then = loaded.score(walkers[0]), fitted.score(walkers[0])
    assert now.windows.E.tobytes() == then.windows.E.tobytes()
    assert now.A.tobytes() == then.A.tobytes()
    assert np.isfinite(now.A).all()


def test_an_empty_clip_does_not_decide_the_skeleton(walkers: list[Clip]) -> None:
    empty = Clip("nobody", None, 9, (), of_size(4))
    detector = Detector.fit([empty, *walkers], replace(CONFIG, max_steps=1))
    assert detector.skeleton == STEP18
    assert detector.origin.clips == 1 + len(walkers)


def test_poses_without_any_confidence_are_refused_unless_it_is_switched_off() -> None:
    walk = np.random.default_rng(0).standard_normal((60, 4, 2)).cumsum(axis=0).astype(np.float32)
    track = Track(0, np.arange(60), walk, np.zeros((60, 4), np.float32))
    clip = Clip("doubtful", None, 60, (track,), of_size(4))
    with pytest.raises(DataError, match="expected poses with confidence to fit on") as error:
        Detector.fit([clip], CONFIG)
    assert "confidence 1" in error.value.hint
    blind = Detector.fit([clip], replace(CONFIG, confidence=False, max_steps=1))
    assert np.isfinite(blind.score(clip).A).all()


def test_energies_that_do_not_vary_are_refused(
    walkers: list[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    def untrained(*_: object, **__: object) -> tuple[dict[str, NDArray[np.float32]], int]:
        shapes = weight_shapes(CONFIG).items()
        return {name: np.zeros(shape, np.float32) for name, shape in shapes}, 1

    monkeypatch.setattr("stepvad.model.training.train", untrained)
    with pytest.raises(DataError, match="expected energies that vary") as error:
        Detector.fit(walkers, CONFIG)
    assert error.value.hint


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # importing it fails, as where it is not installed
import numpy as np
from stepvad import Detector, MissingExtraError, read_clip
clip = read_clip(sys.argv[2])
np.save(sys.argv[3], Detector.load(sys.argv[1]).score(clip).A)
try:
    Detector.fit([clip])
except MissingExtraError as error:
    print(error)
"""


def test_scoring_needs_no_torch_and_fitting_says_what_to_install(
    detector: Detector, walkers: list[Clip], tmp_path: Path
) -> None:
    from stepvad import write_clip

    model, poses, scores = tmp_path / "m.safetensors", tmp_path / "c.json", tmp_path / "A.npy"
    detector.save(model)
    write_clip(walkers[0], poses)
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, model, poses, scores],
        check=True,
        capture_output=True,
        text=True,
    )
    np.testing.assert_array_equal(np.load(scores), detector.score(walkers[0]).A)
    assert run.stdout.strip() == "fit needs the train extra; pip install 'stepvad[train]'"
    assert MissingExtraError("fit", "train").hint == "pip install 'stepvad[train]'"


def test_a_clip_that_does_not_fit_is_named(detector: Detector) -> None:
    rng = np.random.default_rng(0)
    boxes = clip_of(rng.standard_normal((9, 4, 2)), V=4, name="box-clip")
    with pytest.raises(DataError, match="clip box-clip: expected poses of skeleton"):
        detector.score(boxes)


def test_windows_cut_for_another_detector_are_refused(
    detector: Detector, walkers: list[Clip]
) -> None:
    index, _ = cut(walkers[0], [ViewSettings(replace(CONFIG, T=5))], STEP18)
    with pytest.raises(
        DataError, match=r"expected x of shape \(N, 2, 18, 4\), got \(3, 2, 18, 5\)"
    ):
        detector.score_windows(index.windows(slice(0, 3)))
