"""The Python of an image without Docker: the packages of its extras, and no others.

The packages are links to those installed here, so an environment takes a second, not a download.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from tests.pages import ROOT
from tests.requirements import wanted

yaml = pytest.importorskip("yaml")


def extras() -> dict[str, str]:
    """Those of each image that a release builds, by the name of the image."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    matrix = workflow["jobs"]["images"]["strategy"]["matrix"]["include"]
    return {one["name"]: one["extras"] for one in matrix}


def python_of(image: str, directory: Path) -> Path:
    """The interpreter of an image, as an environment in a new directory."""
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, directory], check=True)
    packages = directory / "packages"
    packages.mkdir()
    for name in ("stepvad", *wanted("stepvad", tuple(extras()[image].split(",")))):
        _link(name, packages)
    (site,) = directory.glob("lib/python*/site-packages")
    (site / "image.pth").write_text(f"{packages}\n{ROOT / 'src'}\n")
    return directory / "bin" / "python"


def _link(name: str, packages: Path) -> None:
    """Let a directory have what a distribution installed into site-packages."""
    try:
        found = distribution(name)
    except PackageNotFoundError:  # its marker names another platform
        return
    for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
        place = packages / top
        if not place.exists():
            place.symlink_to(Path(str(found.locate_file(top))))
