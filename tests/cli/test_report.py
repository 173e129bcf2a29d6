"""A page from the command line: by the calibration beside the model, or a threshold by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad import Clip, Detector, read_clip, write_clip
from stepvad.events.calibration import (
    Calibration,
    calibrate_cameras,
    calibration_path,
    write_calibration,
)
from stepvad.events.rules import Rules, events_in
from stepvad.events.threshold import NormalClip
from stepvad.model import modelfile
from stepvad.model.scoring import WindowScores
from tests.conftest import Command
from tests.report.pages import motions, read


@pytest.fixture(scope="module")
def clip(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A test clip that knows its time."""
    whole = read_clip(sorted((people / "pose" / "test").iterdir())[0])
    path = tmp_path_factory.mktemp("poses") / "yard.parquet"
    write_clip(Clip("yard", 25.0, whole.n_frames, whole.tracks), path)
    return path


@pytest.fixture
def own(model: Path, tmp_path: Path) -> Path:
    """A model that may get a calibration."""
    path = tmp_path / "own.safetensors"
    path.write_bytes(model.read_bytes())
    return path


def calibration(model: Path, scores: WindowScores) -> Calibration:
    """One whose threshold makes events of a clip."""
    n = 36_000
    A = np.repeat(np.random.default_rng(0).exponential(size=n // 5), 5).astype(np.float32)
    nothing = np.empty((n, 0), np.float32)
    normal = WindowScores(np.ones(n, np.int64), np.arange(n), A, nothing, A)
    made = calibrate_cameras(
        {"door": [NormalClip(normal, n, 10.0)], "hall": [NormalClip(normal, n, 10.0)]},
        model_sha256=modelfile.sha256(model),
        alerts_per_hour=1.0,
        rules=Rules(threshold=1.0, min_s=0.1, gap_s=0.5),
    )
    low, high = np.quantile(scores.A, (0.7, 0.9)).clip(0.05).tolist()
    return replace(
        made,
        rules=replace(made.rules, threshold=low),
        threshold=replace(made.threshold, value=low),
        cameras={"hall": replace(made.threshold, value=high)},
    )


@pytest.mark.parametrize("camera", [None, "hall", "door"])
def test_events_are_those_of_the_calibration(
    stepvad: Command, own: Path, clip: Path, tmp_path: Path, camera: str | None
) -> None:
    scores = Detector.load(own).score(read_clip(clip)).windows
    made = calibration(own, scores)
    write_calibration(made, calibration_path(own))
    words = () if camera is None else ("--camera", camera)
    run = stepvad("report", own, clip, "-o", tmp_path / "a.html", *words, "--json")
    assert run.code == 0, run.err
    page = read((tmp_path / "a.html").read_text("utf-8"))
    found = events_in(scores, 25.0, made.rules_of(camera or "door"))
    assert found
    facts = json.loads(run.out)
    assert facts["report"] == str(tmp_path / "a.html")
    assert [event["peak"] for event in facts["events"]] == [event.peak for event in found]
    assert f"events: {len(found)}, at scores of " in run.err
    assert len(page.one("tbody").every("tr")) == len(motions(page)) == len(found)
    head = page.every("header")[0].text
    assert "promises at most 1 false events per hour" in head
    assert f"{made.rules_of(camera or 'door').threshold:.2f}, from" in head
    assert modelfile.sha256(own)[:12] in head


def test_a_threshold_by_hand_needs_no_calibration_and_gives_the_same_bytes_again(
    stepvad: Command, model: Path, clip: Path, tmp_path: Path
) -> None:
    for name in ("a.html", "b.html"):
        words = ("--threshold", "0.3", "--events", "1")
        run = stepvad("report", model, clip, "-o", tmp_path / name, *words)
        assert (run.code, run.out.split()) == (0, [str(tmp_path / name)])
    first, second = ((tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second
    assert b"chosen by hand" in first
    assert first.count(b"<article") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.html"]


def test_the_truth_of_a_data_set_is_told(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    poses = sorted((people / "pose" / "test").iterdir())[0]
    words = ("--threshold", "1", "--fps", "25", "--labels", people)
    run = stepvad("report", model, poses, "-o", tmp_path / "a.html", *words)
    assert run.code == 0, run.err
    assert "labelled as abnormal" in (tmp_path / "a.html").read_text("utf-8")


def test_without_a_threshold_it_says_how_to_get_one(
    stepvad: Command, own: Path, clip: Path, tmp_path: Path
) -> None:
    run = stepvad("report", own, clip, "-o", tmp_path / "a.html")
    assert run.code == 1
    assert "expected a calibration next to the model, got none" in run.err
    assert "stepvad calibrate MODEL NORMAL_POSES" in run.err
    scores = Detector.load(own).score(read_clip(clip)).windows
    write_calibration(
        replace(calibration(own, scores), model_sha256="another"), calibration_path(own)
    )
    run = stepvad("report", own, clip, "-o", tmp_path / "a.html")
    assert run.code == 1
    assert "belongs to another model and is ignored" in run.err
    assert not (tmp_path / "a.html").exists()


def test_what_cannot_be_is_refused_and_an_old_page_stays(
    stepvad: Command, own: Path, clip: Path, people: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old.html"
    old.write_text("old")
    raw = sorted((people / "pose" / "test").iterdir())[0]
    run = stepvad("report", own, raw, "-o", old, "--threshold", "1")
    assert "expected a frame rate, got none" in run.err
    assert "--fps" in run.err
    run = stepvad("report", own, clip, "-o", old, "--threshold", "-1")
    assert "threshold: expected a number above 0, got -1" in run.err
    run = stepvad("report", own, clip, "-o", old, "--threshold", "1", "--camera", "roof")
    assert "camera: expected a camera of the calibration, got 'roof'" in run.err
    run = stepvad("report", own, clip, "-o", tmp_path / "page.pdf", "--threshold", "1")
    assert "expected a name that ends in .html" in run.err
    run = stepvad("report", own, clip, "-o", tmp_path / "no" / "a.html", "--threshold", "1")
    assert "in a directory that exists" in run.err
    assert run.code == 1
    assert old.read_text() == "old"
