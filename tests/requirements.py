"""What packages and images need: read from what is installed, linked into a new Python."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.pages import ROOT


def wanted(
    package: str,
    extras: tuple[str, ...],
    pins: Mapping[str, list[Requirement]] | None = None,
) -> dict[str, list[Requirement]]:
    """All that a package needs here, and what that needs in turn.

    With `pins`, packages of another version than pinned are not asked: a new release of one, which
    is installed here, may need what the pinned one does not.
    """
    found: dict[str, list[Requirement]] = {}
    seen: set[tuple[str, str]] = set()
    to_do = [(package, extra) for extra in ("", *extras)]
    while to_do:
        name, extra = to_do.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        known = (pins or {}).get(name, [])
        if known and not any(pin.specifier.contains(version(name)) for pin in known):
            continue
        for text in _requires(name):
            one = Requirement(text)
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                needed = canonicalize_name(one.name)
                if needed != "stepvad":
                    found.setdefault(needed, []).append(one)
                to_do += [(needed, more) for more in ("", *one.extras)]
    return found


def _requires(name: str) -> list[str]:
    """Of stepvad as pyproject.toml says now, not as it was installed."""
    if name != "stepvad":
        return requires(name) or []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"].items()
    return [
        *project["dependencies"],
        *(f'{one}; extra == "{extra}"' for extra, some in optional for one in some),
    ]


def extras() -> dict[str, str]:
    """Those of each image that a release builds, by the name of the image."""
    yaml = pytest.importorskip("yaml")
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
