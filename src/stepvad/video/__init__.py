"""Video to tracked poses: files and cameras, pose estimation, tracking."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepvad.people import Boxes, People
    from stepvad.tracker import Tracker
    from stepvad.video.estimators import (
        BoxDetector,
        JointEstimator,
        PoseEstimator,
        TopDown,
        open_detector,
        open_estimator,
    )
    from stepvad.video.extract import Parts, extract_clip, extract_file
    from stepvad.video.source import Image, open_footage

_NAMES = {
    "people": ("Boxes", "People"),
    "tracker": ("Tracker",),
    "video.estimators": (
        "BoxDetector",
        "JointEstimator",
        "PoseEstimator",
        "TopDown",
        "open_detector",
        "open_estimator",
    ),
    "video.extract": ("Parts", "extract_clip", "extract_file"),
    "video.source": ("Image", "open_footage"),
}

__all__ = [
    "BoxDetector",
    "Boxes",
    "Image",
    "JointEstimator",
    "Parts",
    "People",
    "PoseEstimator",
    "TopDown",
    "Tracker",
    "extract_clip",
    "extract_file",
    "open_detector",
    "open_estimator",
    "open_footage",
]


if not TYPE_CHECKING:  # type checkers see only the imports above

    def __getattr__(name: str) -> object:
        """Load a public name on first use: settings and commands import this package too."""
        home = next((module for module, names in _NAMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module 'stepvad.video' has no attribute {name!r}")
        value = getattr(import_module(f"stepvad.{home}"), name)
        globals()[name] = value
        return value
