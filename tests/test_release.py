"""What a release is made with: workflows that call commands that exist, a package that is true."""

from __future__ import annotations

import csv
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any
from zipfile import Path as ZipPath
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.pages import ROOT
from tests.requirements import extras as images_of_a_release

yaml = pytest.importorskip("yaml")
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PINNED = re.compile(r"[\w-]+/[\w./-]+@[0-9a-f]{40}")


def steps() -> list[dict[str, Any]]:
    jobs = [job for file in WORKFLOWS for job in yaml.safe_load(file.read_text())["jobs"].values()]
    return [step for job in jobs for step in job.get("steps", [])]


def commands() -> list[str]:
    return [step["run"] for step in steps() if "run" in step]


@pytest.mark.parametrize("line", [line for line in commands() if "scripts/versions" in line])
def test_options_in_workflows_are_options_of_the_command(line: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "versions", "--help"], capture_output=True, text=True
    )
    assert {*re.findall(r"--[\w-]+", line)} <= {*re.findall(r"--[\w-]+", done.stdout)}


def test_the_fast_suite_runs_in_another_environment(tmp_path: Path) -> None:
    """As `scripts/versions --tests` runs it: what a program in the place of pytest is given."""
    program = tmp_path / "pytest"
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    there = {"STEPVAD_PYTEST": str(program), "STEPVAD_TEST_PROCESSES": "1"}
    command = [str(ROOT / "scripts" / "test"), "tests/windows"]
    done = subprocess.run(command, env=os.environ | there, capture_output=True, text=True)
    *_, mark, selection, last = done.stdout.splitlines()
    assert (mark, selection, last) == ("-m", "not slow", "tests/windows")
    assert done.stdout.startswith("-q\n-n\n1\n")


def test_actions_are_pinned_by_commit() -> None:
    used = [step["uses"] for step in steps() if "uses" in step]
    assert len(used) > 10
    assert all(PINNED.fullmatch(one) for one in used), used


def test_workflows_have_no_rights_but_those_of_their_jobs_and_an_end() -> None:
    for file in WORKFLOWS:
        facts = yaml.safe_load(file.read_text())
        assert facts["permissions"] == {}, file.name
        for name, job in facts["jobs"].items():
            assert job["permissions"], f"{file.name}: {name}"
            assert "uses" in job or job["timeout-minutes"] <= 90, f"{file.name}: {name}"


def test_workflows_try_every_python_that_the_package_names() -> None:
    pattern = r"Programming Language :: Python :: (3\.\d+)"
    named = re.findall(pattern, "\n".join(PYPROJECT["project"]["classifiers"]))
    for job in yaml.safe_load((GITHUB / "workflows" / "tests.yml").read_text())["jobs"].values():
        assert job["strategy"]["matrix"]["python"] == named


def test_the_images_of_a_release_have_extras_that_exist() -> None:
    images = images_of_a_release()
    assert {*images} == {"stepvad", "stepvad-fleet"}
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    for extras in images.values():
        assert {*extras.split(",")} <= {*PYPROJECT["project"]["optional-dependencies"]}
        assert f"EXTRAS={extras}" in dockerfile
    assert f"\nARG EXTRAS={images['stepvad']}\n" in dockerfile
    fleet = (ROOT / "deploy" / "fleet" / "compose.yaml").read_text("utf-8")
    assert {*re.findall(r'EXTRAS: "(.+)"', fleet)} == {images["stepvad-fleet"]}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built here, without the network."""
    pytest.importorskip("hatchling")
    target = tmp_path_factory.mktemp("dist")
    program = Path(sys.executable).with_name("hatchling")
    command = [str(program), "build", "--target", "wheel", "--directory", str(target)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (found,) = target.glob("*.whl")
    return found


def test_links_of_the_description_work_outside_the_repository(wheel: Path) -> None:
    with ZipFile(wheel) as inside:
        (folder,) = {name.split("/")[0] for name in inside.namelist() if ".dist-info/" in name}
        text = PathDistribution(ZipPath(inside, f"{folder}/")).metadata["Description"]
    targets = re.findall(r"\]\(([^)\s]+)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    assert len(targets) > 10
    own = re.compile(
        r"https://(?:raw\.githubusercontent|github)\.com/stepvad/stepvad/(?:blob/)?v([^/]+)/([^#]+)"
    )
    for target in targets:
        assert target.startswith(("https://", "http://", "#", "mailto:")), target
        if found := own.match(target):
            assert found[1] == PYPROJECT["project"]["version"]
            assert (ROOT / found[2]).exists(), target


def test_the_tools_of_developers_are_no_extras() -> None:
    assert {"test", "dev", "docs"} == {*PYPROJECT["dependency-groups"]}
    optional = PYPROJECT["project"]["optional-dependencies"]
    assert not {"test", "dev", "docs"} & {*optional}
    (everything,) = optional["all"]
    assert Requirement(everything).extras == {*optional} - {"all", "ray"}


def test_one_version_is_everywhere() -> None:
    version = PYPROJECT["project"]["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    for name in (".", "single-site"):
        services = yaml.safe_load((ROOT / "deploy" / name / "compose.yaml").read_text())["services"]
        assert services["stepvad"]["image"] == f"stepvad:{version}"


def test_the_bill_of_materials_names_what_is_locked(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedx_py")
    target = tmp_path / "sbom.json"
    subprocess.run([ROOT / "scripts" / "sbom", target], check=True, capture_output=True)
    found = json.loads(target.read_text("utf-8"))
    assert found["bomFormat"] == "CycloneDX"
    named = {f"{one['name']}=={one['version']}" for one in found["components"]}
    names = ("requirements.lock", "torch.lock")
    lock = "".join((ROOT / name).read_text("utf-8") for name in names)
    assert named == {*re.findall(r"^([\w.-]+==[^ ;\\]+)", lock, re.MULTILINE)}


def versions() -> list[dict[str, str]]:
    with (ROOT / "docs" / "data" / "versions.csv").open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


APART = ("ray", "train", "sklearn")
"""Extras that `scripts/versions` leaves out; the page on versions says what was tried of them."""


def test_every_lower_bound_was_installed_and_used() -> None:
    """On the oldest Python; on newer ones there may be no wheel of the lowest version."""
    (row,) = [
        one for one in versions() if (one["python"], one["versions"]) == ("3.11", "lowest-direct")
    ]
    pins = dict(word.split("==") for word in row["direct"].split())
    optional = PYPROJECT["project"]["optional-dependencies"]
    texts = [*PYPROJECT["project"]["dependencies"]]
    texts += [text for extra, some in optional.items() if extra not in APART for text in some]
    wanted = [one for one in map(Requirement, texts) if one.name != "stepvad"]
    assert {one.name for one in wanted} == {*pins}
    for one in wanted:
        (bound,) = [part.version for part in one.specifier if part.operator == ">="]
        assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", pins[one.name]), (
            f"{one}: {pins[one.name]}"
        )


def test_the_page_on_versions_shows_what_was_measured() -> None:
    assert {(one["python"], one["versions"]) for one in versions()} == {
        (python, which)
        for python in ("3.11", "3.12", "3.13")
        for which in ("lowest-direct", "highest")
    }
    page = (ROOT / "docs" / "benchmarks" / "versions.md").read_text("utf-8")
    assert runpy.run_path(str(ROOT / "scripts" / "versions"))["table"]() in page
