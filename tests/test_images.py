"""What an image can do: a site learns from its recordings, a role of a fleet says what it lacks."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from stepvad.evaluation.walkers import make_clips
from stepvad.site.learning.versions import Versions
from stepvad.site.settings.file import load
from stepvad.site.store.events import FILE_NAME, Store
from tests.images import extras, python_of
from tests.pages import ROOT
from tests.site.learning.recorded import record_clips

pytestmark = pytest.mark.slow
LEARN = """
import sys
from dataclasses import replace
from pathlib import Path
from stepvad.config import Config
from stepvad.site.settings.file import load
from stepvad.site.learning import rounds

small = replace(Config.footage(), fps=25.0, width=32, sigma_width=16, max_steps=40, K=24)
rounds.config_for = lambda settings, poses: small
rounds.fit(load(Path(sys.argv[1])))
"""
"""A round of learning, with a training of seconds."""


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """A program, in the environment of an image and not in that of the tests."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [*map(str, words)], env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("image", [*extras()])
def test_an_image_has_its_packages_and_no_others(image: str, tmp_path: Path) -> None:
    done = run(
        python_of(image, tmp_path / "image"),
        "-c",
        "import json, sys\n"
        "from importlib.util import find_spec\n"
        "import stepvad\n"
        "names = ('torch', 'nats', 'paho', 'apprise', 'av', 'fastapi', 'pytest', 'matplotlib')\n"
        "print(json.dumps([stepvad.__file__] + [name for name in names if find_spec(name)]))",
    )
    assert done.returncode == 0, done.stderr
    own, *found = json.loads(done.stdout)
    assert Path(own).is_relative_to(ROOT / "src")
    more = {"stepvad": {"torch", "apprise"}, "stepvad-fleet": {"nats"}}
    assert {*found} == {"paho", "av", "fastapi"} | more[image]


def test_a_site_in_its_image_learns_from_its_recordings(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('data = "data"\n[[cameras]]\nname = "yard"\nurl = "demo:"\nrate = 25.0\n')
    data = load(path).data
    Store(data / FILE_NAME).close()
    walks = [clip for clip, _ in make_clips(6, seed=3, seconds=6.0, anomalies=False)]
    record_clips(data, "yard", walks)
    python = python_of("stepvad", tmp_path / "image")
    done = run(python, "-c", LEARN, path)
    assert done.returncode == 0, done.stderr
    learned = Versions(data).current
    assert learned is not None
    assert learned.fitted.poses > 0


def test_the_image_of_a_fleet_says_what_fitting_needs(tmp_path: Path) -> None:
    python = python_of("stepvad-fleet", tmp_path / "image")
    (tmp_path / "poses").mkdir()
    done = run(python, "-m", "stepvad", "fit", tmp_path / "poses")
    assert done.returncode == 1
    assert "fit needs the train extra" in done.stderr
