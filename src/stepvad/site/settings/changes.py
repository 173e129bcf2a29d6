"""Classes of settings: what applies while the site runs, reopens a camera, or restarts the site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from stepvad.site.settings.sections import CameraSettings, SiteSettings

Effect = Literal["none", "live", "reopen", "restart"]
EFFECTS: Mapping[str, Effect] = {
    "name": "restart",
    "data": "restart",
    "model": "restart",
    "learning": "live",
    "logs": "restart",
    "pose": "restart",
    "sinks": "live",
    "retention": "live",
    "web": "restart",
    "cameras.name": "restart",
    "cameras.url": "reopen",
    "cameras.credentials": "reopen",
    "cameras.tls_ca": "reopen",
    "cameras.tls_insecure": "reopen",
    "cameras.rate": "reopen",
    "cameras.picture_rate": "reopen",
    "cameras.model": "restart",
    "cameras.threshold": "live",
    "cameras.went_down": "live",
    "cameras.zones": "live",
    "cameras.hours": "live",
    "cameras.zone_hours": "live",
    "cameras.loop": "reopen",
    "cameras.record": "restart",
    "cameras.recorder": "live",
}
"""The class of every section and of every key of a camera."""


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
                again = "Opened again, and watched as before until then"
                return f"{again}: {', '.join(self.reopen)}. The other cameras are watched."
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
            found[EFFECTS[key]].append(key)
    old, new = ({one.name: one for one in each.cameras} for each in (before, after))
    for name in dict.fromkeys([*old, *new]):
        was, now = old.get(name), new.get(name)
        if was is None or now is None:
            found["restart"].append(f"camera {name}")
            continue
        for key in CameraSettings.model_fields:
            if getattr(was, key) == getattr(now, key):
                continue
            effect = EFFECTS[f"cameras.{key}"]
            # only a camera with pictures has a process that opens it
            if effect == "reopen" and not (was.has_pictures and now.has_pictures):
                effect = "restart"
            found[effect].append(name if effect == "reopen" else f"{key} of {name}")
    return Changes(*(tuple(dict.fromkeys(keys)) for keys in found.values()))
