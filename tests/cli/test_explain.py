from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stepvad import Detector, read_clips
from tests.conftest import Command


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
    assert "expected a model with an energy to explain" in run.err


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
