"""The wheel in fresh environments: scoring without torch, and the quick start of a newcomer."""

from __future__ import annotations

import csv
import json
import os
import re
import resource
import site
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from typer.testing import CliRunner

import stepvad
from stepvad import Config
from stepvad.cli import app
from stepvad.evaluation.walkers import write_dataset
from stepvad.formats.labels import shanghaitech
from tests.pages import README, ROOT, blocks, check_output, run

pytestmark = pytest.mark.slow

HERE = Path(sys.executable).parent
UV = HERE / "uv"
HELP_S = 0.5
"""What `stepvad --help` may take."""
IMPORT_S = 0.1
"""What importing typer and rich takes on an idle core of 2026."""
RUNS = 5


def command(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever that is."""
    return subprocess.run(
        [str(word) for word in words],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def succeed(*words: str | Path, **environment: str) -> str:
    """What a program prints on stdout, if it ends well."""
    done = command(*words, **environment)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def in_this_process(*words: str | Path) -> str:
    """What a command prints on stdout, where torch is."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def new_environment(directory: Path, *options: str) -> Path:
    """A fresh virtual environment; its directory of programs."""
    succeed(UV, "venv", "-q", "--python", sys.executable, *options, directory)
    return directory / "bin"


@pytest.fixture(scope="module", autouse=True)
def _compiled_once() -> Iterator[None]:
    """Every program keeps what it compiles, as it does at home: uv compiles nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built in an environment of its own."""
    directory = tmp_path_factory.mktemp("wheel")
    succeed(UV, "build", "-q", "--wheel", "-o", directory, ROOT)
    (found,) = directory.glob("*.whl")
    return found


def test_the_wheel_holds_the_parts_of_its_pages(wheel: Path) -> None:
    with ZipFile(wheel) as inside:
        names = {*inside.namelist()}
    for package in ("report", "web/static"):
        own = {
            f"stepvad/{package}/{part.name}"
            for part in (ROOT / "src/stepvad" / package).iterdir()
            if part.suffix in (".css", ".html", ".js", ".svg")
        }
        assert len(own) >= 5
        assert own <= names


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with stepvad, what it requires and nothing more."""
    programs = new_environment(tmp_path_factory.mktemp("base") / "venv")
    succeed(UV, "pip", "install", "-q", "--python", programs / "python", wheel)
    return programs


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data set, and a model fitted on it with torch, here."""
    root = tmp_path_factory.mktemp("data")
    write_dataset(root / "people", seed=7, train_clips=3, test_clips=3, seconds=8.0)
    train = stepvad.read_clips(root / "people" / "pose" / "train")
    config = Config(width=32, max_steps=40)
    stepvad.Detector.fit(train, config).save(root / "model.safetensors")
    return root


def test_the_base_install_has_no_torch_matplotlib_or_pyarrow(base: Path) -> None:
    found = succeed(
        base / "python",
        "-c",
        "from importlib.util import find_spec\n"
        "for name in ('stepvad', 'numpy', 'torch', 'matplotlib', 'pyarrow'):\n"
        "    print(name, find_spec(name) is not None)",
    )
    assert dict(line.split() for line in found.splitlines()) == {
        "stepvad": "True",
        "numpy": "True",
        "torch": "False",
        "matplotlib": "False",
        "pyarrow": "False",
    }


def test_help_answers_at_once(
    base: Path,
    capsys: pytest.CaptureFixture[str],
    record_property: Callable[[str, object], None],
) -> None:
    """On a slow machine, help may take as much longer as a bare import of typer and rich does."""

    def seconds(*words: str | Path) -> float:
        """Processor time: other tests run on the same cores."""
        begin = resource.getrusage(resource.RUSAGE_CHILDREN)
        succeed(*words)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        return end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime

    bare, helped = [], []
    for _ in range(RUNS):
        bare.append(seconds(base / "python", "-c", "import typer, rich"))
        helped.append(seconds(base / "stepvad", "--help"))
    import_s, help_s = statistics.median(bare), statistics.median(helped)
    told = f"stepvad --help: {help_s:.3f} s (import typer, rich: {import_s:.3f} s)"
    record_property("help", told)
    with capsys.disabled():
        sys.stdout.write(f"\n{told}\n")
    assert help_s < HELP_S * max(1.0, import_s / IMPORT_S), told


def test_help_does_not_even_import_numpy(base: Path) -> None:
    done = command(base / "python", "-X", "importtime", "-m", "stepvad", "--help")
    assert "stepvad.cli" in done.stderr
    assert "numpy" not in done.stderr


def test_scores_and_figures_are_the_same_without_torch(base: Path, people: Path) -> None:
    model, data = people / "model.safetensors", people / "people"
    for words in (("score", model, data / "pose" / "test"), ("evaluate", model, data)):
        here = json.loads(in_this_process(*words, "--json"))
        there = json.loads(succeed(base / "stepvad", *words, "--json"))
        assert_same(here, there)


def test_explanations_add_up_without_torch(base: Path, people: Path) -> None:
    model, poses = people / "model.safetensors", people / "people" / "pose" / "test"
    (found,) = json.loads(succeed(base / "stepvad", "explain", model, poses, "--json"))
    total = found["base"] + sum(map(sum, found["contributions"]))
    assert abs(total - found["score"]) < 1e-4


def assert_same(a: Any, b: Any, where: str = "") -> None:
    """Equal values, numbers to 1e-6."""
    assert type(a) is type(b), where
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_same(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), where
        for at, (one, other) in enumerate(zip(a, b, strict=True)):
            assert_same(one, other, f"{where}[{at}]")
    elif isinstance(a, float):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg=where)
    else:
        assert a == b, where


@pytest.mark.parametrize(
    ("words", "problem", "extra"),
    [
        (["fit", "people/pose/train"], "fit needs the train extra", "train"),
        (
            ["score", "model.safetensors", "clip.json", "--plot", "p.png"],
            "plot needs the plots extra",
            "plots",
        ),
        (
            ["score", "model.safetensors", "clip.parquet"],
            "reading Parquet tracks needs the parquet extra",
            "parquet",
        ),
        (
            ["convert", "clip.json", "other.parquet"],
            "writing Parquet tracks needs the parquet extra",
            "parquet",
        ),
        (
            ["overlay", "model.safetensors", "clip.json", "-o", "clip.mp4"],
            "overlay needs the video extra",
            "video",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_missing_extra_is_named_with_its_remedy(
    base: Path, people: Path, words: list[str], problem: str, extra: str
) -> None:
    source = sorted((people / "people" / "pose" / "test").iterdir())[0]
    (people / "clip.json").write_bytes(source.read_bytes())
    (people / "clip.parquet").write_bytes(b"whatever")
    done = subprocess.run(
        [base / "stepvad", *words], cwd=people, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    wanted = f"error: {problem}\n\nhint: pip install 'stepvad[{extra}]'"
    assert done.stderr.strip().endswith(wanted)
    assert "Traceback" not in done.stderr


def newcomer(directory: Path) -> Path:
    """The programs of a fresh environment in which only torch and its kind are borrowed.

    The borrowed packages stand in a directory that a .pth file adds to the new environment. stepvad
    itself is left out of it: pip has to find the wheel and install it, with its program.
    """
    programs = new_environment(directory / "venv", "--seed")
    borrowed = directory / "borrowed"
    borrowed.mkdir()
    for package in Path(site.getsitepackages()[0]).iterdir():
        if "stepvad" not in package.name and not package.name.startswith("pip"):
            (borrowed / package.name).symlink_to(package)
    packages = next((directory / "venv").glob("lib/python*/site-packages"))
    (packages / "borrowed.pth").write_text(f"{borrowed}\n")
    # the environment's own setuptools would hide the borrowed one, which suits torch
    succeed(UV, "pip", "uninstall", "-q", "--python", programs / "python", "setuptools")
    return programs


@pytest.mark.ci
def test_the_quick_start_runs_as_written_from_its_install_line_on(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(blocks(README))
    assert not any(block.mark for block in found)
    assert found[0].commands == ["pip install 'stepvad[train,plots]'"]
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    programs, here = newcomer(tmp_path), tmp_path / "quick-start"
    here.mkdir()
    for block in found:
        check_output(block, run(block, here, bin=programs, pip=True))
    assert (programs / "stepvad").exists()
    check_picture(here / "scores.png")
    check_scores(here)


def check_picture(drawn: Path) -> None:
    """A picture of the scores like that of the README."""
    from matplotlib.image import imread

    assert drawn.stat().st_size > 10_000
    picture = np.asarray(imread(drawn))[..., :3]
    shown = np.asarray(imread(ROOT / "docs" / "images" / "timeline.png"))[..., :3]
    assert picture.shape == shown.shape
    blue = np.abs(picture - np.array([0x00, 0x72, 0xB2]) / 255).max(axis=2) < 0.05
    columns = np.flatnonzero(blue.any(axis=0))
    assert columns.max() - columns.min() > 0.7 * picture.shape[1]  # a line across the picture
    rows = np.flatnonzero(blue.any(axis=1))
    assert rows.max() - rows.min() > 0.5 * picture.shape[0]  # that rises and falls
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20


def check_scores(quick_start: Path) -> None:
    """A score for every frame, the highest where the README says."""
    written = (quick_start / "scores.csv").read_text("utf-8")
    assert written.startswith("clip,frame,score\n")
    rows = list(csv.DictReader(written.splitlines()))
    readme = README.read_text("utf-8")
    (file,) = set(re.findall(r"people/pose/test/\w+\.json", readme))
    clip = stepvad.read_clip(quick_start / file)
    assert [(row["clip"], int(row["frame"])) for row in rows] == [
        (clip.name, frame) for frame in range(clip.n_frames)
    ]
    detector = stepvad.Detector.load(quick_start / "model.safetensors")
    got = np.array([float(row["score"] or "nan") for row in rows])
    np.testing.assert_allclose(got, detector.score(clip).frames, rtol=1e-4)
    abnormal = np.flatnonzero(shanghaitech(quick_start / "people")[clip.name].abnormal)
    assert f"in frames {abnormal[0]} to {abnormal[-1]}." in readme
    assert np.nanargmax(got) in abnormal
