"""Several views, one detector: each as -log p of its distance to the nearest usual motion."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from stepvad.archive import scoring
from stepvad.archive.scoring import ScoreOptions
from stepvad.config import Config
from stepvad.detector import NEW_PLACE, Detector
from stepvad.errors import DataError, ModelFileError
from stepvad.events.drift import score_with_stats
from stepvad.formats import write_clip
from stepvad.model.modelfile import read_with_digest, write_tensors
from stepvad.model.scoring import Surprise, SurpriseByAge
from stepvad.model.usual import FOLDS
from stepvad.poses import Clip
from stepvad.stream import Stream, update_all
from stepvad.windows.runs import cut
from stepvad.windows.views import Windows
from tests.conftest import Command

KINDS = (("pose", 25), ("pose", 8), ("motion", 25), ("place", 8))


def windows_of(detector: Detector, clip: Clip) -> Windows:
    return cut(clip, detector.view_settings, detector.skeleton)[0].windows(slice(None))


def test_a_view_that_a_person_is_too_new_for_says_what_it_says_of_normal_people(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    windows = windows_of(usual_model, usual_footage[0])
    scores = usual_model.score_windows(windows)
    assert scores.E.shape[1] == usual_model.columns == 4
    (young,) = np.flatnonzero(windows.frame == windows.frame.min())[:1]
    assert young not in windows.views[0].rows
    assert scores.E[young, [0, 2, 3]].tolist() == [1, 1, 1]
    poses = (1 + scores.E[young, 1]) / 2
    assert scores.A[young] == pytest.approx((max(poses, 1) + 1) / 2, rel=1e-5)
    for number, view in enumerate(usual_model.views):
        own = windows.views[number]
        expected = view.rarity(view.score(own.windows)[1], own.windows.ages(view.config))
        if view.config.view == "place":
            assert pytest.approx(-np.log(0.01)) == NEW_PLACE
            expected = np.minimum(expected, NEW_PLACE)
        np.testing.assert_array_equal(scores.E[own.rows, number], expected)


def test_a_new_place_counts_no_more_than_its_cap(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    clip = usual_footage[0]
    elsewhere = [replace(one, keypoints=one.keypoints + 10_000) for one in clip.tracks]
    windows = windows_of(usual_model, replace(clip, tracks=tuple(elsewhere)))
    place, view = windows.views[3], usual_model.views[3]
    uncapped = view.rarity(view.score(place.windows)[1], place.windows.ages(view.config))
    assert uncapped.min() > NEW_PLACE + 1
    E = usual_model.score_windows(windows).E[place.rows, 3]
    np.testing.assert_allclose(E, NEW_PLACE, rtol=1e-6)


def test_a_stream_and_an_archive_score_as_the_clip(
    usual_model: Detector, usual_footage: list[Clip], tmp_path: Path
) -> None:
    clip = usual_footage[1]
    usual_model.save(tmp_path / "model.safetensors")
    detector = Detector.load(tmp_path / "model.safetensors", threads=1)
    expected = detector.score(clip).windows
    order = np.lexsort((expected.frame, expected.track_id))
    stream = Stream(detector, fps=25.0)
    online = [update_all([(stream, *frame)])[0] for frame in clip.by_frame()]
    track, frames, A = (
        np.concatenate([getattr(part, name) for part in online])
        for name in ("track_id", "frame", "A")
    )
    mine = np.lexsort((frames, track))
    np.testing.assert_array_equal(frames[mine], expected.frame[order])
    np.testing.assert_allclose(A[mine], expected.A[order], rtol=1e-4, atol=1e-4)
    place = tmp_path / "poses" / "date=2026-05-01" / "camera=gate"
    place.mkdir(parents=True)
    write_clip(clip, place / "clip.parquet")
    model, options = tmp_path / "model.safetensors", ScoreOptions(energies=True)
    scoring.score(str(tmp_path / "poses"), str(tmp_path / "scores"), model, options)
    (file,) = (tmp_path / "scores").rglob("*.parquet")
    table = pq.read_table(file)
    assert table["A"].to_numpy().tobytes() == expected.A.tobytes()
    assert len(table["E"][0]) == 4


def test_a_file_says_what_is_wrong_with_its_views(usual_model: Detector, tmp_path: Path) -> None:
    usual_model.save(tmp_path / "a.safetensors")
    tensors, meta, _ = read_with_digest(tmp_path / "a.safetensors")
    for name, broken, words in (
        ("view1.0.levels", tensors["view1.0.levels"][::-1], "must rise"),
        ("view1.ages", tensors["view1.ages"] + 20, "at most"),
        ("view3.0.nats", tensors["view3.0.nats"][:3], "must be float64 of shape"),
        ("view2.W_K", tensors["view2.W_K"][:, :2], "must be float32 of shape"),
        ("view2.usual", tensors["view2.usual"][:, ::-1], "must rise"),
        ("view2.usual", tensors["view2.usual"][:2], "must be float64 of shape"),
        ("view2.pace.feet", tensors["view2.pace.feet"][::-1], "must rise"),
        ("view2.pace.size", tensors["view2.pace.size"][:1], "must be float64 of shape"),
        ("view2.pace.speed", 0 * tensors["view2.pace.speed"], "must be positive"),
        ("view1.noise", -1 - tensors["view1.noise"], "must not be negative"),
    ):
        write_tensors(tensors | {name: broken}, meta, tmp_path / "c.safetensors")
        with pytest.raises(ModelFileError, match=words):
            Detector.load(tmp_path / "c.safetensors")
    without = {name: one for name, one in tensors.items() if not name.endswith("usual")}
    write_tensors(without, meta, tmp_path / "c.safetensors")
    with pytest.raises(ModelFileError, match=r"'view2\.usual' is missing"):
        Detector.load(tmp_path / "c.safetensors")


def test_surprise_is_the_logarithm_of_how_rare_a_score_is() -> None:
    rng = np.random.default_rng(0)
    surprise = Surprise.measure(rng.exponential(3.0, 100_000).astype(np.float32))
    for score in (0.5, 3.0, 12.0, 60.0):  # p = exp(-score / 3), beyond the last level too
        assert surprise(np.array([score], np.float32))[0] == pytest.approx(score / 3, rel=0.06)
    new = surprise(rng.exponential(3.0, 10_000).astype(np.float32))
    assert new.mean() == pytest.approx(1.0, abs=0.05)  # -log p of normal footage has mean 1
    assert surprise(np.array([-5.0], np.float32))[0] == 0
    with pytest.raises(DataError, match=r"at least 200 windows of each view .*, got 199"):
        Surprise.measure(np.zeros(199, np.float32))
    constant = Surprise.measure(np.zeros(200, np.float32))
    assert np.isfinite(constant(np.array([0.0, 1.0], np.float32))).all()


def test_young_windows_are_ranked_among_young_ones() -> None:
    rng = np.random.default_rng(0)
    ages = rng.integers(2, 9, 70_000)
    A = (rng.exponential(1.0, len(ages)) * np.where(ages < 4, 10, 1)).astype(np.float32)
    surprise = SurpriseByAge.measure(A, ages, Config(T=8, least=2))
    assert surprise.first == (2, 4, 8)
    same = np.array([3.0, 3.0, 3.0], np.float32)
    young, older, whole = surprise(same, np.array([3, 7, 8]))
    assert (young, older) == (pytest.approx(0.3, rel=0.1), pytest.approx(3.0, rel=0.1))
    assert whole == pytest.approx(3.0, rel=0.1)
    few = np.where(ages < 4, 8, ages)  # no window so young: the next older ones stand for them
    assert SurpriseByAge.measure(A, few, Config(T=8, least=2)).first == (4, 8)
    with pytest.raises(DataError, match="got 5"):
        SurpriseByAge.measure(A[:5], ages[:5], Config(T=8, least=2))


def test_a_score_is_as_rare_as_the_band_of_its_age_says() -> None:
    rng = np.random.default_rng(0)
    ages = rng.integers(2, 9, 9000)
    A = (rng.exponential(1.0, len(ages)) * ages).astype(np.float32)
    surprise = SurpriseByAge.measure(A, ages, Config(T=8, least=2))
    levels = np.concatenate([band.levels for band in surprise.bands]).astype(np.float32)
    some = np.concatenate([levels, rng.uniform(-5, 80, 500).astype(np.float32)])
    for age, band in ((1, 0), (3, 0), (5, 1), (8, 2)):
        expected = surprise.bands[band](some)
        found = surprise(some, np.full(len(some), age))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_scores_are_ranked_among_those_of_footage_that_is_new_to_the_model(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    view, surprise = usual_model.views[1], usual_model.views[1].surprise
    assert surprise is not None
    whole = []
    for number, clip in enumerate(usual_footage):
        own = windows_of(usual_model, clip).views[1].windows
        d = usual_model.without(number % FOLDS).views[1].score(own)[1]
        whole.append(d[own.ages(view.config) == view.config.T])
    assert surprise.first[-1] == view.config.T
    levels = surprise.bands[-1].levels
    assert levels[0] == pytest.approx(np.concatenate(whole).min(), rel=1e-4)
    assert levels[-1] == pytest.approx(np.quantile(np.concatenate(whole), 0.99), rel=1e-3)


def test_a_model_knows_how_fast_people_were(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    usual = usual_model.views[2].model.usual
    assert usual is not None
    assert usual_model.views[0].model.usual is usual_model.views[3].model.usual is None
    x = [windows_of(usual_model, clip).views[2].windows.x for clip in usual_footage]
    velocity = np.concatenate(x)[:, :, 0, 0]
    speed = np.linalg.norm(velocity.astype(np.float64), axis=1)
    np.testing.assert_allclose(usual[0], np.quantile(speed, [0, 0.01, 0.99, 1]), rtol=1e-5)


def test_drift_looks_at_each_view(usual_model: Detector, usual_footage: list[Clip]) -> None:
    _, stats = score_with_stats(usual_model, usual_footage[0], 25.0)
    names = [one.config.view_name for one in usual_model.views]
    assert stats.names == ("score", "confidence", *names)
    assert names == [f"{k} over {T} frames" for k, T in KINDS]
    assert np.isfinite(stats.values).all()


def test_the_command_fits_and_describes_views(
    stepvad: Command, usual_footage: list[Clip], tmp_path: Path
) -> None:
    poses, model = tmp_path / "poses", tmp_path / "model.safetensors"
    poses.mkdir()
    for clip in usual_footage:
        write_clip(clip, poses / f"{clip.name}.parquet")
    run = stepvad("fit", poses, "-o", model, "--method", "usual", "--views", "pose,motion,place")
    assert run.code == 0, run.err
    words = stepvad("inspect", model).out
    assert "Method        usual: distance to the nearest usual motion" in words
    assert "Views         pose over 25 frames, pose over 8 frames, motion over 25 frames" in words
    assert re.search(r"^Centroids     (\d+, ){4}each the mean of at least 5 tracks$", words, re.M)
    assert "50 % whitened" in words
    assert "Confidence    weighs the joints" in words
    facts = json.loads(stepvad("inspect", model, "--json").out)
    assert len(facts["centroids"]) == 4
    assert "E_mean" not in facts
    assert stepvad("score", model, poses).code == 0
    told = stepvad("explain", model, poses).out
    assert re.search(r"^Views         pose \d+ %, motion \d+ %, place", told, flags=re.MULTILINE)
    assert "Noise scale" not in told
    assert re.search(r"^pose over 25 frames +[+-]", told, flags=re.MULTILINE)
    found = re.findall(r"^(.+?) +([+-][0-9.]+)(?: |$)", told, flags=re.MULTILINE)
    adds = {name: float(value) for name, value in found}
    score = adds.pop("score")
    views = [adds.pop(name) for name in [*adds] if " over " in name]
    assert sum(views) == pytest.approx(score, abs=0.05)
    assert sum(adds.values()) == pytest.approx(score, abs=0.1)
    for option, words in (
        (("--views", "motion"), "expected pose, optionally with motion or place"),
        (("--T", "12"), "--T: expected a fit that uses it, got --method usual"),
        (("--resume",), "--resume: expected a fit that uses it, got --method usual"),
        (("--views", "pose", "--method", "knn"), "--views: expected a fit that uses it"),
    ):
        refused = stepvad("fit", poses, "-o", model, "--method", "usual", *option)
        assert (refused.code, words in refused.err) == (1, True), option
    refused = stepvad("export", model, "-o", tmp_path / "model.onnx")
    assert "expected a model of the paper's energy, got one of usual motion" in refused.err
