"""What a package with some of its extras needs, read from what is installed here."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.metadata import requires, version

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
