"""Every study runs at its smallest size; the studies themselves are in `studies/`."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from string import Formatter

import pytest

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.evaluation.datasets import write_dataset
from stepvad.evaluation.walkers import make
from stepvad.formats import write_clip
from stepvad.model.scoring import true_runs
from stepvad.poses import Clip
from tests.pages import ROOT

SLOW, LONG = pytest.mark.slow, pytest.mark.long

TINY = "--width 16 --max-steps 4"
MOTIONS = "{data_dir}/CMU-mocap/mocap_30fps_15j.npz"
SMALLEST: dict[str, tuple[str, list[pytest.MarkDecorator]]] = {
    "ablations": (f"grid {{walker_dataset}} --seeds 1 --T 8,12 --K 6 {TINY} -o out", [SLOW]),
    "autoencoders": (f"{{walker_dataset}} --K 6 {TINY}", [SLOW]),
    "budget": ("{street} --fps 25 --splits 3 --shares 0.7,0.3", [SLOW]),
    "components": ("{walker_dataset}", [SLOW]),
    "cost": ("", []),
    "explanations": ("{model} {walker_dataset} --windows 20 --cases 3", [SLOW]),
    "fit-memory": ("2000", [LONG]),
    "footage": ("{hall} --max-steps 8", [SLOW]),
    "make-mocap": (
        f"m --size small --archive {MOTIONS} --contact-sheet s.png",
        [pytest.mark.data, SLOW],
    ),
    "pictures": ("traversal {walker_dataset} -o t.png", [SLOW]),
    "capacity": ("", []),
    "privacy": ("{street} --fps 25", [SLOW]),
    "profiles": ("tiny={model}", [LONG]),
    "runtimes": ("{model} {walker_dataset} --runtimes onnxruntime", [SLOW]),
    "speed": (
        "--model {model} --people 2 --threads 1 --repeats 3 -o a.csv --plot a.png",
        [LONG],
    ),
    "statistics": ("{walker_dataset}", [SLOW]),
    "stream": ("--frames 100 --readings 1", [SLOW]),
    "training-precision": ("{walker_dataset} --width 16 --steps 4 --seeds 2", [LONG]),
    "validation": ("{walker_dataset} --width 16 --epochs 1", [SLOW]),
    "usual": ("{street} --fps 25 --seeds 1 --beside knn --variants -o out", [SLOW]),
    "walkers-sheet": ("s.png", [SLOW]),
    "what-holds": ("", []),
}
"""Arguments of each study, words in braces are fixtures; and what marks it, if it takes long."""

HELP_ALONE = {
    "animation": "draws the pictures of the README anew",
    "archive": "writes and kills for minutes",
    "body": "joints that are missing in real poses",
    "chaos": "root, another build, and minutes",
    "confidence": "videos and networks",
    "demo": "writes the model of the demo",
    "descents": "recorded falls",
    "drift": "motion capture",
    "faults": "root, and minutes; tests/studies/test_faults.py plays a row",
    "first-day": "a wheel, videos and networks",
    "fleet-scale": "three brokers, PostgreSQL and half an hour",
    "fleet-latency": "PostgreSQL, a NATS server and a minute",
    "fleet-writer": "PostgreSQL, NATS servers and a minute",
    "following": "videos of falls and networks",
    "gaps": "videos, and minutes of processes that are killed",
    "gate": "videos and networks",
    "hours": "motion capture",
    "joints": "videos and networks",
    "learn-body": "motion capture, and writes the model of the body",
    "neighbours": "a video and networks",
    "page-pictures": "Chromium, and draws the pictures of the guide anew",
    "site": "two idle cores for minutes",
    "site-drift": "minutes",
    "site-weeks": "motion capture",
    "sizes": "labelled footage",
    "soak": "root, and minutes",
    "tracking": "a video and networks",
    "unpack": "archives of public data",
    "vary-video": "a video",
    "view-cost": "an idle core for minutes",
    "watching": "videos and networks",
}
"""What a study needs that a test has not."""


@pytest.fixture(scope="session")
def model(walkers: list[Clip], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model."""
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    config = Config(K=12, width=16, blocks=2, max_steps=8, ema_warmup=True)
    Detector.fit(walkers[:1], config).save(path)
    return path


@pytest.fixture(scope="session")
def street(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough walkers for usual motion, as a data set."""
    directory = tmp_path_factory.mktemp("street")
    people = make(seed=3, train_clips=12, test_clips=2, seconds=4.0, people=8)
    write_dataset(people, directory)
    return directory


@pytest.fixture(scope="session")
def hall(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of walkers as pose files: two to fit on, two to calibrate on, three to test."""
    directory = tmp_path_factory.mktemp("hall")
    clips: dict[str, dict[str, object]] = {}
    data = make(seed=3, train_clips=5, test_clips=2, seconds=8.0)
    for n, (clip, labels) in enumerate(
        [*((c, None) for c in data.train_clips()), *data.test_clips()]
    ):
        write_clip(replace(clip, name=f"c{n}"), directory / f"c{n}.parquet")
        events = [] if labels is None else true_runs(labels.abnormal)
        times = [[first / clip.rate(), end / clip.rate()] for first, end in events]
        clips[f"c{n}"] = {"poses": f"c{n}.parquet", "events": times}
    fold = {"fit": ["c0", "c1"], "calibrate": ["c2", "c3"], "test": ["c4", "c5", "c6"]}
    facts = {"version": 1, "name": "hall", "clips": clips, "folds": {"all": fold}}
    (directory / "hall.json").write_text(json.dumps(facts), "utf-8")
    return directory / "hall.json"


def test_every_study_of_the_list_has_its_smallest_size_here() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "studies"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()[2:]
    studies = dict(line.split(maxsplit=1) for line in listed)
    assert sorted(studies) == sorted([*SMALLEST, *HELP_ALONE])
    assert all(said.endswith(".") for said in studies.values())


@pytest.mark.parametrize("study", [*SMALLEST, *HELP_ALONE])
def test_a_study_answers_help(study: str, capsys: pytest.CaptureFixture[str]) -> None:
    code: object = 0
    try:
        importlib.import_module(f"studies.{study.replace('-', '_')}").main(["--help"])
    except SystemExit as end:
        code = end.code
    assert not code
    assert "usage:" in capsys.readouterr().out.lower()


def test_an_unknown_study_is_refused() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "studies", "wings"], cwd=ROOT, capture_output=True, text=True
    )
    assert made.returncode == 1
    assert "there is no study 'wings'" in made.stderr


@pytest.mark.parametrize(
    ("study", "arguments"),
    [
        pytest.param(name, arguments, marks=marks, id=name)
        for name, (arguments, marks) in SMALLEST.items()
    ],
)
def test_a_study_runs_at_its_smallest_size(
    study: str,
    arguments: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {field for _, field, _, _ in Formatter().parse(arguments) if field}
    given = {name: request.getfixturevalue(name) for name in names}
    words = [word.format(**given) for word in arguments.split()]
    importlib.import_module(f"studies.{study.replace('-', '_')}").main(words)
    printed = capsys.readouterr().out
    files = [Path(word) for word in words if word.endswith((".csv", ".png", ".json"))]
    assert printed or files
    assert all(path.stat().st_size > 0 for path in files)
