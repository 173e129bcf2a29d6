"""Several views, one detector: each as -log p under unseen normal footage, and their mean."""

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
from stepvad.config import Checkpoint, Config
from stepvad.detector import NEW_PLACE, Detector
from stepvad.errors import ConfigError, DataError, ModelFileError
from stepvad.evaluation.walkers import make_clips
from stepvad.events.drift import score_with_stats
from stepvad.formats import write_clip
from stepvad.model.footage import hold_out
from stepvad.model.modelfile import read_with_digest, write_tensors
from stepvad.model.scoring import Surprise, SurpriseByAge
from stepvad.poses import Clip
from stepvad.stream import Stream, update_all
from stepvad.windows.runs import cut
from tests.conftest import Command

QUICK = Config(K=12, width=16, max_steps=8, ema_warmup=True, clock=True)


@pytest.fixture(scope="module")
def footage() -> list[Clip]:
    return [clip for clip, _ in make_clips(8, seed=4, seconds=6.0)]


@pytest.fixture(scope="module")
def several(footage: list[Clip]) -> Detector:
    """Poses of 25 and 8 frames, motion over both, and the place."""
    return Detector.fit(footage, QUICK.per_view(("pose", "motion", "place"), 25.0))


def alone(several: Detector) -> list[Detector]:
    """A detector for each view."""
    return [replace(several, views=(view,)) for view in several.views]


def test_the_score_is_the_weighted_mean_of_the_views(
    several: Detector, footage: list[Clip]
) -> None:
    windows = cut(footage[0], several.view_settings, several.skeleton)[0].windows(slice(None))
    scores = several.score_windows(windows)
    shares = [0.5, 0.5, 0.5, 0.5, 1.0]  # each kind counts the same
    assert scores.E.shape[1] == several.columns == 5
    row = int(windows.views[0].rows[0])
    assert scores.A[row] == pytest.approx(np.average(scores.E[row], weights=shares), rel=1e-5)
    (young,) = np.flatnonzero(windows.frame == windows.frame.min())[:1]
    assert young not in windows.views[0].rows
    assert scores.E[young, [0, 2, 3, 4]].tolist() == [1, 1, 1, 1]  # what normal footage says
    assert scores.A[young] == pytest.approx((0.5 * scores.E[young, 1] + 2.5) / 3, rel=1e-5)
    for number, part in enumerate(alone(several)):
        own = part.score_windows(windows.views[number].windows)
        ages = windows.views[number].windows.ages(part.config)
        expected = part.views[0].rarity(own.A, ages)
        if number == 4:
            assert pytest.approx(-np.log(0.01)) == NEW_PLACE
            expected = np.minimum(expected, NEW_PLACE)
        np.testing.assert_array_equal(scores.E[windows.views[number].rows, number], expected)


def test_a_new_place_counts_no_more_than_its_cap(several: Detector, footage: list[Clip]) -> None:
    elsewhere = [replace(one, keypoints=one.keypoints + 10_000) for one in footage[0].tracks]
    clip = replace(footage[0], tracks=tuple(elsewhere))
    windows = cut(clip, several.view_settings, several.skeleton)[0].windows(slice(None))
    place, view = windows.views[4], several.views[4]
    uncapped = view.rarity(view.score(place.windows)[1], place.windows.ages(view.config))
    assert uncapped.min() > NEW_PLACE + 1
    E = several.score_windows(windows).E[place.rows, 4]
    np.testing.assert_allclose(E, NEW_PLACE, rtol=1e-6)


def test_a_stream_and_an_archive_score_as_the_clip(
    several: Detector, footage: list[Clip], tmp_path: Path
) -> None:
    clip = footage[1]
    several.save(tmp_path / "model.safetensors")
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
    assert len(table["E"][0]) == 5


def test_a_file_holds_all_views_and_says_what_is_wrong_with_them(
    several: Detector, footage: list[Clip], tmp_path: Path
) -> None:
    several.save(tmp_path / "a.safetensors")
    read = Detector.load(tmp_path / "a.safetensors")
    assert [one.config for one in read.views] == [one.config for one in several.views]
    assert read.score(footage[0]).A.tobytes() == several.score(footage[0]).A.tobytes()
    read.save(tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    tensors, meta, _ = read_with_digest(tmp_path / "a.safetensors")
    for name, broken, words in (
        ("view1.0.levels", tensors["view1.0.levels"][::-1], "must rise"),
        ("view1.ages", tensors["view1.ages"] + 20, "at most"),
        ("view2.0.scale", np.zeros(1), "must be positive"),
        ("view4.0.nats", tensors["view4.0.nats"][:3], "must be float64 of shape"),
        ("view3.W_K", tensors["view3.W_K"][:, :2], "must be float32 of shape"),
        ("view3.usual", tensors["view3.usual"][:, ::-1], "must rise"),
        ("view2.usual", tensors["view2.usual"][:2], "must be float64 of shape"),
        ("view2.pace.feet", tensors["view2.pace.feet"][::-1], "must rise"),
        ("view2.pace.size", tensors["view2.pace.size"][:1], "must be float64 of shape"),
        ("view3.pace.speed", 0 * tensors["view3.pace.speed"], "must be positive"),
        ("view1.noise", -1 - tensors["view1.noise"], "must not be negative"),
    ):
        write_tensors(tensors | {name: broken}, meta, tmp_path / "c.safetensors")
        with pytest.raises(ModelFileError, match=words):
            Detector.load(tmp_path / "c.safetensors")
    without = {name: one for name, one in tensors.items() if not name.endswith("usual")}
    write_tensors(without, meta, tmp_path / "c.safetensors")
    with pytest.raises(ModelFileError, match=r"'view2\.usual' is missing"):
        Detector.load(tmp_path / "c.safetensors")
    changed = json.loads(json.dumps(meta))
    changed["views"].reverse()
    write_tensors(tensors, changed, tmp_path / "c.safetensors")
    with pytest.raises(ModelFileError, match="the first is not the longest"):
        Detector.load(tmp_path / "c.safetensors")


def test_surprise_is_the_logarithm_of_how_rare_a_score_is() -> None:
    rng = np.random.default_rng(0)
    surprise = Surprise.measure(rng.exponential(3.0, 100_000).astype(np.float32))
    for score in (0.5, 3.0, 12.0, 60.0):  # p = exp(-score / 3), beyond the last level too
        assert surprise(np.array([score], np.float32))[0] == pytest.approx(score / 3, rel=0.06)
    new = surprise(rng.exponential(3.0, 10_000).astype(np.float32))
    assert new.mean() == pytest.approx(1.0, abs=0.05)  # -log p of normal footage has mean 1
    assert surprise(np.array([-5.0], np.float32))[0] == 0
    with pytest.raises(DataError, match="at least 200 windows of held-out footage, got 199"):
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


@pytest.mark.parametrize("n", [1, 7, 8, 13])
def test_footage_that_ranks_scores_is_not_fitted_on(footage: list[Clip], n: int) -> None:
    clips = [replace(clip, name=str(number)) for number, clip in enumerate((footage * 2)[:n])]
    learned, held = hold_out(clips)

    def poses(parts: list[Clip]) -> set[tuple[str, int, int]]:
        return {(c.name, t.id, f) for c in parts for t in c.tracks for f in t.frames.tolist()}

    assert not poses(learned) & poses(held)
    assert poses(learned) | poses(held) == poses(clips)
    assert 0.1 < len(poses(held)) / len(poses(clips)) < 0.4


def test_scores_are_ranked_among_those_of_the_held_out_footage(
    several: Detector, footage: list[Clip]
) -> None:
    learned, held = hold_out(footage)
    part, surprise = alone(several)[1], several.views[1].surprise
    assert surprise is not None
    found = [cut(clip, part.view_settings, part.skeleton)[0].windows(slice(None)) for clip in held]
    unseen = np.concatenate([part.score_windows(windows).A for windows in found])
    ages = np.concatenate([windows.ages(part.config) for windows in found])
    assert surprise.first[-1] == part.config.T
    whole = unseen[ages == part.config.T]
    assert surprise.bands[-1].levels[0] == pytest.approx(whole.min(), rel=1e-4)
    assert part.origin.clips == len(learned)


def test_a_model_knows_how_fast_people_were(several: Detector, footage: list[Clip]) -> None:
    usual = several.views[3].model.usual
    assert usual is not None
    assert several.views[0].model.usual is several.views[4].model.usual is None
    part = alone(several)[3]
    x = [cut(clip, part.view_settings, part.skeleton)[0].windows(slice(None)).x for clip in footage]
    velocity = np.concatenate(x)[:, :, 0, 0]  # of all clips, also those held out
    speed = np.linalg.norm(velocity.astype(np.float64), axis=1)
    np.testing.assert_allclose(usual[0], np.quantile(speed, [0, 0.01, 0.99, 1]), rtol=1e-5)


def test_drift_looks_at_each_view(several: Detector, footage: list[Clip]) -> None:
    _, stats = score_with_stats(several, footage[0], 25.0)
    names = ("pose over 25 frames", "pose over 8 frames", "motion over 25 frames")
    assert stats.names[:5] == ("score", "confidence", *names)
    assert np.isfinite(stats.values).all()


def test_what_needs_one_view_of_the_pose_says_so(
    several: Detector, footage: list[Clip], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="export: expected a model of one view"):
        several.export(tmp_path / "model.onnx")
    with pytest.raises(ConfigError, match="fit: expected one view for validation, checkpoints"):
        Detector.fit(
            footage, [one.config for one in several.views], checkpoint=Checkpoint(tmp_path / "x")
        )
    motion = Detector.fit(footage, replace(QUICK, view="motion"))
    assert motion.config.K == 4
    with pytest.raises(ConfigError, match="got motion"):
        motion.export(tmp_path / "model.onnx")


def test_the_command_fits_and_describes_views(
    stepvad: Command, footage: list[Clip], tmp_path: Path
) -> None:
    (tmp_path / "poses").mkdir()
    for clip in footage:
        write_clip(clip, tmp_path / "poses" / f"{clip.name}.parquet")
    model = tmp_path / "model.safetensors"
    quick = ("--max-steps", "8", "--width", "16", "--K", "12")
    run = stepvad("fit", tmp_path / "poses", "-o", model, "--views", "pose,motion", *quick)
    assert run.code == 0, run.err
    words = stepvad("inspect", model).out
    assert "Views         pose over 25 frames, pose over 8 frames, motion over 25 frames" in words
    assert stepvad("score", model, tmp_path / "poses").code == 0
    told = stepvad("explain", model, tmp_path / "poses").out
    assert re.search(r"^Views         pose \d+ %, motion \d+ %$", told, flags=re.MULTILINE)
    assert "Noise scale" not in told
    assert re.search(r"^pose over 25 frames +[+-]", told, flags=re.MULTILINE)
    found = re.findall(r"^(.+?) +([+-][0-9.]+)(?: |$)", told, flags=re.MULTILINE)
    adds = {name: float(value) for name, value in found}
    score = adds.pop("score")
    views = [adds.pop(name) for name in [*adds] if " over " in name]
    assert sum(views) == pytest.approx(score, abs=0.05)
    assert sum(adds.values()) == pytest.approx(score, abs=0.1)
    refused = stepvad("fit", tmp_path / "poses", "--views", "motion", *quick)
    assert (refused.code, "expected pose, optionally with motion or place" in refused.err) == (
        1,
        True,
    )
    for option in (("--resume",), ("--method", "knn")):
        refused = stepvad("fit", tmp_path / "poses", "--views", "pose,motion", *option)
        assert refused.code == 1, option


def test_a_quarter_of_the_poses_is_held_out_wherever_they_are(footage: list[Clip]) -> None:
    early = replace(footage[0], n_frames=100_000)  # nobody is seen after the first seconds
    learned, held = hold_out([early])
    assert held[0].n_poses / early.n_poses == pytest.approx(0.25, abs=0.05)
    assert learned[0].n_poses + held[0].n_poses == early.n_poses
    assert hold_out([replace(early, tracks=())])[1][0].n_poses == 0
