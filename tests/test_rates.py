"""Footage of another frame rate than the model's, at every border: converted, or said."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from stepvad.archive import scoring
from stepvad.archive.scoring import ScoreOptions
from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import DataError
from stepvad.events.calibration import ScoredFootage, read_calibration
from stepvad.explain import explain
from stepvad.explain.event import explain_peak
from stepvad.formats import write_clip
from stepvad.poses import Clip
from stepvad.site import demo
from stepvad.site.checking import check
from stepvad.site.models import Models
from stepvad.site.pipeline import Pipeline
from stepvad.site.settings.file import load
from stepvad.site.status import LiveStatus
from stepvad.site.store.events import Store
from stepvad.windows import runs
from stepvad.windows.runs import at_rate
from tests.conftest import Command
from tests.tracks import with_config

SLOW = 10.0


@pytest.fixture(scope="module")
def slow_model(walkers: list[Clip]) -> Detector:
    """A model of walkers at ten frames a second, by the clock."""
    config = Config(T=6, K=12, width=16, max_steps=8, ema_warmup=True, clock=True, fps=SLOW)
    return Detector.fit(walkers, config)


@pytest.fixture
def slow_file(slow_model: Detector, tmp_path: Path) -> Path:
    slow_model.save(tmp_path / "slow.safetensors")
    return tmp_path / "slow.safetensors"


@pytest.fixture(autouse=True)
def nothing_said_yet() -> None:
    runs._ratio.cache_clear()


def test_the_file_knows_the_rate(slow_model: Detector, slow_file: Path) -> None:
    assert slow_model.config.fps == SLOW
    assert Detector.load(slow_file).config == slow_model.config


def test_an_archive_of_another_rate_has_the_scores_of_its_clips(
    slow_file: Path, walkers: list[Clip], tmp_path: Path
) -> None:
    clip = walkers[0]
    place = tmp_path / "poses" / "date=2026-05-01" / "camera=gate"
    place.mkdir(parents=True)
    write_clip(clip, place / f"{clip.name}.parquet")
    scores = tmp_path / "scores"
    scoring.score(str(tmp_path / "poses"), str(scores), slow_file, ScoreOptions())
    (file,) = scores.rglob("*.parquet")
    expected = Detector.load(slow_file, threads=1).score(clip)
    assert clip.fps == 25.0
    assert expected.T == 14  # 13 steps of 40 ms are longer than 5 of 100 ms
    assert pq.read_table(file)["A"].to_numpy().tobytes() == expected.A.tobytes()


def test_explanations_of_another_rate_add_up(slow_model: Detector, walkers: list[Clip]) -> None:
    scores = slow_model.score(walkers[0])
    row = int(np.argmax(scores.A))
    track, frame = int(scores.windows.track_id[row]), int(scores.windows.frame[row])
    (found,) = explain(slow_model, walkers[0], [(track, frame)])
    assert found.score == pytest.approx(float(scores.A[row]), abs=1e-4)
    assert found.base + found.contributions.sum() == pytest.approx(found.score, abs=1e-3)
    assert found.frames.tolist() == [frame - back for back in (12, 10, 7, 5, 2, 0)]
    seen = next(one for one in walkers[0].tracks if one.id == track)
    last = seen.keypoints[np.searchsorted(seen.frames, frame)]
    np.testing.assert_allclose(found.observed[-1], last, atol=1e-3)
    peak = explain_peak(slow_model, walkers[0], track, frame, calm=0.0)
    assert peak.peak.frames[-1] == frame
    ends = [int(window.frames[-1]) for window in peak.windows]
    assert {14} >= set(np.diff(ends).tolist())


def test_calibration_takes_the_rate_that_it_is_told(
    slow_model: Detector, walkers: list[Clip]
) -> None:
    unknown = [replace(clip, fps=None) for clip in walkers]
    told, known = ScoredFootage(), ScoredFootage()
    told.score(slow_model, "gate", unknown, fps=25.0)
    known.score(slow_model, "gate", walkers)
    assert (told.ledgers, told.rates) == (known.ledgers, known.rates)


def test_commands_convert_and_say_so(
    stepvad: Command, slow_file: Path, walkers: list[Clip], tmp_path: Path
) -> None:
    write_clip(walkers[0], tmp_path / "fast.parquet")
    write_clip(replace(walkers[0], fps=None), tmp_path / "unknown.json")
    inspected = stepvad("inspect", slow_file)
    words = "0.5 s at 10 per second; footage of another rate is resampled"
    assert words in inspected.out
    scored = stepvad("score", slow_file, tmp_path / "fast.parquet", "--json")
    assert "footage of 25 frames per second is resampled to the model's 10" in scored.err
    unknown = stepvad("score", slow_file, tmp_path / "unknown.json", "--json")
    assert (
        "warning: the footage does not state its frame rate; assuming the model's 10" in unknown.err
    )
    told = stepvad("score", slow_file, tmp_path / "unknown.json", "--json", "--fps", "25")
    assert told.out.replace("unknown", walkers[0].name) != unknown.out
    fitted = tmp_path / "fitted.safetensors"
    quick = ("--width", "16", "--max-steps", "4", "--K", "12")
    stepvad("fit", tmp_path / "fast.parquet", "-o", fitted, *quick)
    assert (Detector.load(fitted).config.clock, Detector.load(fitted).config.fps) == (True, 25.0)
    (tmp_path / "fit.toml").write_text("clock = false\n")
    by_frames = ("--fps", "50", "--settings", tmp_path / "fit.toml")
    stepvad("fit", tmp_path / "unknown.json", "-o", fitted, *quick, *by_frames)
    assert (Detector.load(fitted).config.clock, Detector.load(fitted).config.fps) == (False, 50.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clock": True, "fps": 10.0}, "ok: camera door: footage of 5 frames per second is resam"),
        ({"fps": 10.0}, "warning: camera door: the model was fitted at 10 frames per second"),
        ({"fps": None}, "warning: camera door: the model does not state the frame rate"),
        ({"fps": 5.0}, None),
    ],
)
def test_check_compares_the_rates_of_cameras_and_models(
    changes: dict[str, float | None], words: str | None, tmp_path: Path
) -> None:
    for file in demo.MODEL.parent.glob(f"{demo.MODEL.stem}*"):
        shutil.copy(file, tmp_path)
    detector = Detector.load(demo.MODEL)
    config = replace(detector.config, **changes)  # type: ignore[arg-type]  # Config checks
    with_config(detector, config).save(tmp_path / "m.safetensors")
    text = 'model = "m.safetensors"\n[[cameras]]\nname = "door"\nrate = 5\nthreshold = 3\n'
    (tmp_path / "site.toml").write_text(text + 'url = "rtsp://10.0.0.2/a"\n')
    lines = check(load(tmp_path / "site.toml"))
    next(lines)
    said = next(lines)
    assert said.startswith(words) if words is not None else "TLS" in said


def test_marked_events_of_another_rate_are_counted_at_the_models(
    slow_model: Detector, walkers: list[Clip]
) -> None:
    assert at_rate(walkers[0], slow_model.config).fps == SLOW
    assert at_rate(walkers[0], replace(slow_model.config, clock=False)) is walkers[0]


BUDGET = ("--alerts-per-hour", "120")
OTHER_RATE = "the threshold was calibrated on footage of 25 frames per second, this footage has 5"


@pytest.fixture
def site(stepvad: Command, walkers: list[Clip], tmp_path: Path) -> Path:
    """Settings of a camera of 5 frames a second; its model was calibrated at 25."""
    (tmp_path / "poses").mkdir()
    for clip in walkers:
        write_clip(clip, tmp_path / "poses" / f"{clip.name}.parquet")
    config = Config(T=6, K=12, width=16, max_steps=8, ema_warmup=True)
    Detector.fit(walkers, config).save(tmp_path / "m.safetensors")
    made = stepvad("calibrate", tmp_path / "m.safetensors", tmp_path / "poses", *BUDGET)
    assert made.code == 0, made.err
    text = 'model = "m.safetensors"\n[[cameras]]\nname = "door"\nrate = 5\n'
    slow = write_slow(walkers[0], tmp_path / "slow.parquet")
    (tmp_path / "site.toml").write_text(text + f'url = "{slow}"\n')
    return tmp_path / "site.toml"


def write_slow(clip: Clip, path: Path) -> Path:
    """The clip as if it had 5 frames a second."""
    write_clip(replace(clip, fps=5.0), path)
    return path


def test_a_calibration_knows_the_rate_of_its_footage(site: Path) -> None:
    beside = site.parent / "m.calibration.json"
    made = read_calibration(beside)
    assert made.rates == {"poses": (25.0,)}
    config = Config(fps=25.0)
    assert made.rate_note(config, 25.0) is None
    assert made.rate_note(config, 25.1) is None
    assert OTHER_RATE in (made.rate_note(config, 5.0) or "")
    assert made.rate_note(replace(config, clock=True), 5.0) is None
    facts = json.loads(beside.read_text())
    for bad in ({"poses": [0]}, {"poses": ["25"]}, [25]):
        beside.write_text(json.dumps(facts | {"rates": bad}))
        with pytest.raises(DataError, match="expected a calibration"):
            read_calibration(beside)


def test_a_camera_with_its_own_threshold_is_compared_with_its_own_footage(site: Path) -> None:
    made = read_calibration(site.parent / "m.calibration.json")
    rates = {"hall": (5.0,), "poses": (25.0,)}
    several = replace(made, cameras={"poses": made.threshold}, rates=rates)
    assert OTHER_RATE in (several.rate_note(Config(), 5.0, "poses") or "")
    assert several.rate_note(Config(), 5.0, "hall") is None


def test_who_applies_a_calibration_of_another_rate_says_so(
    stepvad: Command, site: Path, tmp_path: Path
) -> None:
    model, slow = tmp_path / "m.safetensors", tmp_path / "slow.parquet"
    scored = stepvad("score", model, slow, "--events", tmp_path / "events.jsonl")
    assert f"warning: {OTHER_RATE}" in scored.err
    same = stepvad("score", model, tmp_path / "poses", "--events", tmp_path / "events.jsonl")
    assert "calibrated on" not in same.err
    reported = stepvad("report", model, slow, "-o", tmp_path / "a.html")
    assert f"warning: {OTHER_RATE}" in reported.err
    checked = stepvad("watch", site, "--check")
    assert f"warning: camera door: {OTHER_RATE}" in checked.out
    place = tmp_path / "archive" / "date=2026-05-01"
    place.mkdir(parents=True)
    shutil.copy(slow, place)
    archived = stepvad("archive", "score", tmp_path / "archive", "-o", tmp_path / "s", "--model",
                       model)  # fmt: skip
    assert f"warning: {OTHER_RATE}" in archived.err
    assert "warning: the model was fitted at 25 frames per second" in archived.err


def test_a_site_logs_a_calibration_of_another_rate(
    site: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Store(tmp_path / "events.db")) as store:
        Pipeline(load(site), Models(), LiveStatus(), store)
    assert f"camera door: {OTHER_RATE}" in caplog.text


def test_a_threshold_by_hand_needs_no_calibration_of_the_same_rate(site: Path) -> None:
    model = Models().load(site.parent / "m.safetensors")
    assert model.calibration_note("door", 5.0, 3.0) is None
    assert OTHER_RATE in (model.calibration_note("door", 5.0, None) or "")
