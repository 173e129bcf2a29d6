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
    from stepvad.video.extract import Parts, extract_clip, extract_file, track_people
    from stepvad.video.source import Image, open_footage

_HOME = {
    "BoxDetector": "video.estimators",
    "Boxes": "people",
    "Image": "video.source",
    "JointEstimator": "video.estimators",
    "Parts": "video.extract",
    "People": "people",
    "PoseEstimator": "video.estimators",
    "TopDown": "video.estimators",
    "Tracker": "tracker",
    "extract_clip": "video.extract",
    "extract_file": "video.extract",
    "open_detector": "video.estimators",
    "open_estimator": "video.estimators",
    "open_footage": "video.source",
    "track_people": "video.extract",
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
        value = getattr(import_module(f"stepvad.{_HOME[name]}"), name)
        globals()[name] = value
        return value
