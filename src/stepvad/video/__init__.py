"""Video to tracked poses: files and cameras, pose estimation, tracking."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepvad.video.extract import Parts, extract_clip, extract_file, track_people
    from stepvad.video.people import (
        BoxDetector,
        Boxes,
        JointEstimator,
        People,
        PoseEstimator,
        TopDown,
        open_detector,
        open_estimator,
    )
    from stepvad.video.source import Image, open_footage
    from stepvad.video.tracker import Tracker

_HOME = {
    "BoxDetector": "people",
    "Boxes": "people",
    "Image": "source",
    "JointEstimator": "people",
    "Parts": "extract",
    "People": "people",
    "PoseEstimator": "people",
    "TopDown": "people",
    "Tracker": "tracker",
    "extract_clip": "extract",
    "extract_file": "extract",
    "open_detector": "people",
    "open_estimator": "people",
    "open_footage": "source",
    "track_people": "extract",
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
    "track_people",
]


if not TYPE_CHECKING:  # type checkers see only the imports above

    def __getattr__(name: str) -> object:
        """Load a public name on first use: settings and commands import this package too."""
        if name not in _HOME:
            raise AttributeError(f"module 'stepvad.video' has no attribute {name!r}")
        value = getattr(import_module(f"stepvad.video.{_HOME[name]}"), name)
        globals()[name] = value
        return value
