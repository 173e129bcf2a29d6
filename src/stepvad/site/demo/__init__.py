"""A demo site without cameras: synthetic poses and a model fitted on them."""

from __future__ import annotations

from pathlib import Path

from stepvad.site.settings.page import Web
from stepvad.site.settings.sections import CameraSettings, SiteSettings

HERE = Path(__file__).parent
POSES = HERE / "scene.parquet"
MODEL = HERE / "walkers.safetensors"
RATE = 12.5
"""Frames per second of the poses that the model was fitted on."""
SIZE = (1280, 720)
"""Width and height of the scene in pixels."""


def settings(data: Path, port: int) -> SiteSettings:
    """Settings of a site with one demo camera."""
    camera = CameraSettings(
        name="demo",
        url="demo:",
        rate=RATE,
        zones={"left": [(0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0)]},
    )
    return SiteSettings(name="demo", data=data, model=MODEL, cameras=[camera], web=Web(port=port))
