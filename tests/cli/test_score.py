"""Scores, explanations and reports on the command line."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad import Clip, Detector, Track, read_clip, read_clips, write_clip, write_clips
from stepvad.events.calibration import (
    Calibration,
    calibration_path,
    write_calibration,
)
from stepvad.events.exceptions import exceptions_for
from stepvad.events.ledger import LedgerEntry
from stepvad.events.record import Review
from stepvad.events.rules import Rules, events_in, find_events
from stepvad.model import modelfile
from stepvad.model.scoring import WindowScores
from tests.conftest import Command
from tests.report.pages import motions, read
from tests.site.records import record


def test_score_names_the_strangest_moment_of_every_clip(
    stepvad: Command, model: Path, people: Path
) -> None:
    run = stepvad("score", model, people / "pose" / "test")
    assert run.code == 0
    detector = Detector.load(model)
    for clip in read_clips(people / "pose" / "test"):
        scores = detector.score(clip)
        line = next(line for line in run.out.splitlines() if line.startswith(clip.name))
        top = int(scores.A.argmax())
        assert line.split()[3:] == [
            f"{scores.A[top]:.2f}",
            str(scores.windows.frame[top]),
            str(scores.windows.track_id[top]),
        ]


@pytest.mark.filterwarnings("default:expected coordinates in pixels")
def test_fractions_of_the_image_are_warned_of_once(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    clips = list(read_clips(people / "pose" / "test"))
    write_clips([replace(clip, tracks=tuple(map(scaled, clip.tracks))) for clip in clips], tmp_path)
    run = stepvad("score", model, tmp_path)
    assert run.code == 0
    line = (
        "warning: expected coordinates in pixels, got all of them within 0 to 1; multiply x by "
        "the width and y by the height of the image"
    )
    assert run.err.count("pixels") == run.err.splitlines().count(line) == 1


def scaled(track: Track) -> Track:
    low, high = track.keypoints.min(), track.keypoints.max()
    return replace(track, keypoints=(track.keypoints - low) / (high - low))


def test_csv_and_json_hold_the_score_of_every_frame(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    file = sorted((people / "pose" / "test").iterdir())[0]
    run = stepvad("score", model, file, "-o", tmp_path / "s.csv", "--json")
    (clip,) = read_clips(file)
    expected = Detector.load(model).score(clip).frames
    with (tmp_path / "s.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    from_csv = [float(row["score"]) if row["score"] else math.nan for row in rows]
    np.testing.assert_allclose(from_csv, expected, rtol=1e-5)
    from_json = [math.nan if v is None else v for v in json.loads(run.out)[0]["frames"]]
    np.testing.assert_allclose(from_json, expected, rtol=1e-6)
    assert np.isnan(expected).any()


def test_what_commands_write_is_for_its_owner_alone(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    before = os.umask(0o022)
    try:
        file = sorted((people / "pose" / "test").iterdir())[0]
        stepvad("score", model, file, "-o", tmp_path / "s.csv", "--plot", tmp_path / "s.png")
        stepvad("convert", file, tmp_path / "tracks.parquet")
        stepvad("convert", file, tmp_path / "tracks.json")
        stepvad("export", model, "-o", tmp_path / "model.onnx")
        Detector.load(model).save(tmp_path / "model.safetensors")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    names = ("s.csv", "s.png", "tracks.parquet", "tracks.json", "model.onnx", "model.safetensors")
    assert modes == dict.fromkeys(names, 0o600)


def test_plots_are_written_for_one_clip_and_for_many(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    poses = people / "pose" / "test"
    file = sorted(poses.iterdir())[0]
    assert stepvad("score", model, file, "--plot", tmp_path / "one.png").code == 0
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    folder = tmp_path / "many"
    folder.mkdir()
    assert stepvad("score", model, poses, "--plot", folder).code == 0
    assert len(list(folder.glob("*.png"))) == 4
    run = stepvad("score", model, poses, "--plot", tmp_path / "x.png")
    assert run.code == 1
    assert "expected a directory for the plots of several clips" in run.err


def test_an_empty_clip_and_a_short_track_have_no_score(
    stepvad: Command, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.json").write_text("{}", encoding="utf-8")
    pose = {"keypoints": [float(i) for i in range(51)], "scores": 1.0}
    (tmp_path / "short.json").write_text(json.dumps({"1": {"0": pose}}), encoding="utf-8")
    run = stepvad("score", model, tmp_path)
    assert run.code == 0
    assert (
        "warning: nobody is seen for long enough to be scored, clips: 2 (empty, short)" in run.err
    )
    assert [line.split()[1:] for line in run.out.splitlines()[2:]] == [
        ["0", "0", "-", "-", "-"],
        ["1", "0", "-", "-", "-"],
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--plot", "x.jpg"), "expected a name that ends in .png"),
        (("--plot", "no/such/x.png"), "in a directory that exists"),
        (("-o", "no/such/s.csv"), "in a directory that exists"),
        (("-o", "/proc/s.csv"), "/proc/s.csv: expected a place that can be written"),
    ],
)
def test_an_output_that_cannot_be_written_is_an_error_and_no_traceback(
    stepvad: Command, model: Path, people: Path, words: tuple[str, ...], message: str
) -> None:
    file = sorted((people / "pose" / "test").iterdir())[0]
    run = stepvad("score", model, file, *words)
    assert run.code == 1
    assert message in run.err
    assert "hint: " in run.err


def test_a_reader_that_has_seen_enough_is_no_error(model: Path, people: Path) -> None:
    words = (
        f"{sys.executable} -m stepvad score {model} {people / 'pose' / 'test'} --json | head -n 1"
    )
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", words], capture_output=True, text=True, check=False
    )
    assert run.stdout == "[\n"
    assert "Traceback" not in run.stderr
    assert "Broken" not in run.stderr


def test_odd_clip_names_are_only_names(stepvad: Command, model: Path, tmp_path: Path) -> None:
    names = ["[bold]x[red]", 'a,"b"', "a$frac^$"]
    (tmp_path / "poses").mkdir()
    for name in names:
        (tmp_path / "poses" / f"{name}.json").write_text("{}", encoding="utf-8")
    plots = tmp_path / "plots"
    plots.mkdir()
    words = ("-o", tmp_path / "s.csv", "--plot", plots)
    run = stepvad("score", model, tmp_path / "poses", *words)
    assert run.code == 0
    for name in names:
        assert name in run.out
        assert (plots / f"{name}.png").exists()


def test_a_clip_named_as_a_path_is_not_drawn_elsewhere(
    stepvad: Command, model: Path, tmp_path: Path
) -> None:
    write_clips([Clip("../outside", None, 3, ())], tmp_path / "p.parquet")
    (tmp_path / "plots").mkdir()
    run = stepvad("score", model, tmp_path / "p.parquet", "--plot", tmp_path / "plots")
    assert run.code == 1
    assert "expected a name that can be a file name" in run.err
    assert not (tmp_path / "outside.png").exists()


def test_the_same_clip_twice_is_refused(stepvad: Command, model: Path, people: Path) -> None:
    poses = people / "pose" / "test"
    run = stepvad("score", model, poses, poses)
    assert run.code == 1
    assert "twice" in run.err


def test_distances_have_no_runtime_to_choose(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    train, path = people / "pose" / "train", tmp_path / "knn.safetensors"
    stepvad("fit", train, "-o", path, "--method", "knn", "--K", "8")
    done = stepvad("score", path, train, "--runtime", "numpy")
    assert done.code == 1
    assert (
        "error: --runtime: expected a model with a network for 'numpy', got distances" in done.err
    )


def test_the_highest_window_is_explained_in_words_and_numbers(
    stepvad: Command, model: Path, people: Path
) -> None:
    poses = people / "pose" / "test"
    run = stepvad("explain", model, poses)
    assert run.code == 0
    detector = Detector.load(model)
    scores = [detector.score(clip) for clip in read_clips(poses)]
    best = max(scores, key=lambda one: one.A.max())
    row = int(best.A.argmax())
    last = best.windows.frame[row]
    head = f"{best.clip}, track {best.windows.track_id[row]}, frames {last - 11}-{last}"
    assert run.out.startswith(head)
    assert f"Score         {best.A[row]:.2f}: " in run.out
    assert f"took {best.windows.E[row].max() - best.A[row]:.2f} off" in run.out
    rows = re.findall(r"^(.+?) +([+-][0-9.]+)(?: |$)", run.out, flags=re.MULTILINE)
    adds = {name: float(value) for name, value in rows}
    score = adds.pop("score")
    assert len(adds) == 7
    assert sum(adds.values()) == pytest.approx(score, abs=0.05)


def test_json_has_everything_and_adds_up(stepvad: Command, model: Path, people: Path) -> None:
    run = stepvad("explain", model, people / "pose" / "test", "--top", "3", "--json")
    found = json.loads(run.out)
    assert len(found) == 3
    assert [one["score"] for one in found] == sorted((o["score"] for o in found), reverse=True)
    for one in found:
        total = one["base"] + sum(map(sum, one["contributions"]))
        assert total == pytest.approx(one["score"], abs=1e-4)
        assert len(one["ghost"]) == len(one["frames"]) == 12
        assert len(one["ghost"][0]) == len(one["joints"]) == 17


def test_one_person_at_one_moment(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    file = sorted((people / "pose" / "test").iterdir())[0]
    (clip,) = read_clips(file)
    windows = Detector.load(model).score(clip).windows
    place = "--track", str(windows.track_id[3]), "--frame", str(windows.frame[3])
    run = stepvad("explain", model, file, *place, "-o", tmp_path / "why.png", "--json")
    (one,) = json.loads(run.out)
    assert (one["track"], one["frames"][-1]) == (windows.track_id[3], windows.frame[3])
    assert one["score"] == pytest.approx(float(windows.A[3]), abs=1e-4)
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")
    assert "drawn to" in run.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--track", "1"], "expected --track and --frame together"),
        (["--track", "1", "--frame", "99"], "expected one clip with --track and --frame, got 4"),
        (["-o", "why.pdf"], "expected a name that ends in .png"),
    ],
)
def test_what_cannot_be_is_refused(
    stepvad: Command, model: Path, people: Path, words: list[str], message: str
) -> None:
    run = stepvad("explain", model, people / "pose" / "test", *words)
    assert run.code == 1
    assert message in run.err


def test_a_model_of_distances_has_no_energy_to_explain(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    path = tmp_path / "knn.safetensors"
    stepvad("fit", people / "pose" / "train", "-o", path, "--method", "knn", "--K", "12")
    run = stepvad("explain", path, people / "pose" / "test")
    assert run.code == 1
    assert "expected a model with a network, got distances" in run.err


def test_footage_without_people_has_nothing_to_explain(
    stepvad: Command, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "a_alphapose_tracked_person.json").write_text("{}")
    run = stepvad("explain", model, tmp_path)
    assert run.code == 1
    assert "expected a person in 12 consecutive frames, got none" in run.err


def test_it_does_without_torch(model: Path, people: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['torch'] = None  # importing it is an error\n"
        "from stepvad.cli import app\n"
        f"app(['explain', {str(model)!r}, {str(people / 'pose' / 'test')!r}, '--json'])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(json.loads(run.stdout)) == 1


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
    entry = LedgerEntry(watched_s=3600.0, quiet=(4.0, 3.0, 2.0))
    made = Calibration.from_ledgers(
        {"door": [entry], "hall": [entry]},
        model_sha256=modelfile.sha256(model),
        alerts_per_day=24.0,
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
    assert "about 1 alert an hour: a budget, from" in head
    assert f"{made.rules_of(camera or 'door').threshold:.2f}, about" in head
    assert modelfile.sha256(own)[:12] in head


def test_motion_that_was_marked_as_normal_raises_no_event_of_its_camera(
    stepvad: Command, own: Path, clip: Path, tmp_path: Path
) -> None:
    detector, walk = Detector.load(own), read_clip(clip)
    made = calibration(own, detector.score(walk).windows)
    rules = made.rules_of("door")
    found = find_events(walk, detector.score(walk), rules)
    marked = [
        record("door", number, tracks=event.tracks, threshold=rules.threshold)
        for number, event in enumerate(found)
    ]
    reviews = {one.id: Review("normal", 1.0) for one in marked}
    exceptions = exceptions_for(detector, marked, reviews, dict.fromkeys(reviews, walk))
    write_calibration(replace(made, exceptions=exceptions), calibration_path(own))
    for command, n in ((("--camera", "door"), 0), ((), len(found))):
        run = stepvad("score", own, clip, *command, "--events", tmp_path / "e.jsonl")
        assert f"events: {n}, written" in run.err
        run = stepvad("report", own, clip, "-o", tmp_path / "a.html", *command)
        assert f"events: {n}, at scores" in run.err


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
