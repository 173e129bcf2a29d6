"""Classes of settings: what applies while the site runs, reopens a camera, or restarts the site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepvad.site.settings.sections import CameraSettings, SiteSettings

Effect = Literal["none", "live", "reopen", "restart"]
LIVE = frozenset(
    {"learning", "sinks", "retention", "cameras.threshold", "cameras.went_down"}
    | {"cameras.zones", "cameras.hours", "cameras.zone_hours", "cameras.recorder"}
)
"""Sections, and keys of a camera, that apply between two frames."""
REOPEN = frozenset(
    {"cameras.url", "cameras.credentials", "cameras.tls_ca", "cameras.tls_insecure"}
    | {"cameras.rate", "cameras.picture_rate", "cameras.loop"}
)
"""Keys for which a camera with pictures is opened again; all others restart the site."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The difference of two settings, by what it takes."""

    live: tuple[str, ...] = ()
    """What applies between two frames."""
    reopen: tuple[str, ...] = ()
    """Cameras to open again; the others are watched meanwhile."""
    restart: tuple[str, ...] = ()
    """What only a restart applies."""

    @property
    def effect(self) -> Effect:
        """The largest effect."""
        if self.restart:
            return "restart"
        return "reopen" if self.reopen else "live" if self.live else "none"

    @property
    def words(self) -> str:
        """The effect for an operator."""
        match self.effect:
            case "restart":
                return (
                    f"The site restarts, because of: {', '.join(self.restart)}. No camera is "
                    "watched for some seconds."
                )
            case "reopen":
                return f"Opened again: {', '.join(self.reopen)}. The other cameras are watched."
            case "live":
                return "It applies at once; every camera is watched meanwhile."
            case "none":
                return "Nothing changes for the running site."


def compare(before: SiteSettings, after: SiteSettings) -> Changes:
    """Sort what differs between two settings by what it takes to apply it."""
    found: dict[Effect, list[str]] = {"live": [], "reopen": [], "restart": []}
    # whole sections, then the cameras one by one
    for key in SiteSettings.model_fields:
        if key != "cameras" and getattr(before, key) != getattr(after, key):
            found["live" if key in LIVE else "restart"].append(key)
    old, new = ({one.name: one for one in each.cameras} for each in (before, after))
    for name in dict.fromkeys([*old, *new]):
        was, now = old.get(name), new.get(name)
        if was is None or now is None:
            found["restart"].append(f"camera {name}")
            continue
        for key in CameraSettings.model_fields:
            if getattr(was, key) == getattr(now, key):
                continue
            # only a camera with pictures has a process that opens it
            if f"cameras.{key}" in REOPEN and was.has_pictures and now.has_pictures:
                found["reopen"].append(name)
            else:
                effect: Effect = "live" if f"cameras.{key}" in LIVE else "restart"
                found[effect].append(f"{key} of {name}")
    return Changes(*(tuple(dict.fromkeys(keys)) for keys in found.values()))
