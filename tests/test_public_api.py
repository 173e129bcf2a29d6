from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stepvad
from stepvad import Clip, Compute, Config, Detector, Reference, Stream, evaluation, explain
from stepvad.events.calibration import calibrate
from stepvad.explain.event import explain_highest
from stepvad.windows.runs import cut

PUBLIC = [
    "Checkpoint",
    "Clip",
    "Compute",
    "Config",
    "ConfigError",
    "DataError",
    "Detector",
    "Event",
    "Explanation",
    "MissingExtraError",
    "ModelFileError",
    "Pose",
    "Reference",
    "Rules",
    "Scores",
    "Skeleton",
    "StepvadError",
    "Stream",
    "Threshold",
    "Track",
    "Tracker",
    "WindowScores",
    "Windows",
    "calibrate",
    "clips_from_table",
    "clips_to_table",
    "find_events",
    "read_clip",
    "read_clips",
    "scores_from_table",
    "scores_to_table",
    "update_all",
    "write_clip",
    "write_clips",
]


def test_the_public_names_are_exactly_these() -> None:
    assert stepvad.__all__ == PUBLIC
    assert dir(stepvad) == sorted([*PUBLIC, "__version__"])


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_with_words_on_it(name: str) -> None:
    assert getattr(stepvad, name).__doc__


TRAINING = ("Checkpoint", "Detector")
"""Names whose example fits a model."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in TRAINING else name for name in PUBLIC],
)
def test_every_public_name_has_an_example_that_runs(
    name: str,
    small_model: Detector,
    walkers: list[Clip],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    thing = getattr(stepvad, name)
    given = {"np": np, "detector": small_model, "clips": walkers, "clip": walkers[0]}
    public = {name: getattr(stepvad, name) for name in PUBLIC}
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(thing, name, globs={"Path": Path} | public | given)
    assert example.examples
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(example).failed == 0


def test_public_objects_print_in_one_line(small_model: Detector, walkers: list[Clip]) -> None:
    clip, detector = walkers[0], small_model
    stream = Stream(detector)
    scores = detector.score(clip)
    pose = next(pose for _, poses in clip.by_frame() for pose in poses)
    windows = cut(clip, detector.view_settings, detector.skeleton)[0].windows(slice(0, 3))
    (worst,) = explain_highest(detector, [clip])
    made = (
        *(clip, clip.tracks[0], pose, detector, stream, windows, scores, scores.windows, worst),
        *(stepvad.Tracker(), Config(), Reference(), Compute(), detector.skeleton),
    )
    for one in made:
        line = repr(one)
        assert "\n" not in line
        assert line.startswith(type(one).__name__)
        assert len(line) < 600
    assert repr(
        clip.tracks[0]
    ) == f"Track(id={clip.tracks[0].id}, poses={len(clip.tracks[0])}, " + (
        f"frames={clip.tracks[0].frames[0]} to {clip.tracks[0].frames[-1]})"
    )
    assert "pose over 12 frames, step18" in repr(detector)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Wings'"):
        _ = stepvad.Wings  # type: ignore[attr-defined]  # that is the point


def test_importing_the_package_and_its_command_line_is_light() -> None:
    heavy = "{'torch', 'numpy', 'scipy', 'safetensors', 'pyarrow', 'matplotlib'}"
    code = f"import sys, stepvad.cli, stepvad.evaluation; print(sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == "[]"


RESEARCH = [
    "CustomDataset",
    "CustomMethod",
    "Dataset",
    "Evaluation",
    "FrameLabels",
    "FrameView",
    "Interval",
    "MethodResult",
    "ResultRow",
    "Scorer",
    "Spread",
    "Trials",
    "auroc",
    "average_precision",
    "compare",
    "equal_error_rate",
    "evaluate",
    "open_dataset",
]


def test_the_public_names_for_researchers_are_exactly_these() -> None:
    assert evaluation.__all__ == RESEARCH
    for name in RESEARCH:
        assert getattr(evaluation, name).__doc__
    assert callable(evaluation.compare)
    with pytest.raises(AttributeError, match="no attribute 'wings'"):
        _ = evaluation.wings  # type: ignore[attr-defined]  # that is the point


def test_a_type_is_the_same_wherever_it_comes_from() -> None:
    assert stepvad.Explanation is explain.Explanation
    assert stepvad.calibrate is calibrate
