"""Pose-based video anomaly detection: fit on normal motion, score new motion."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepvad.config import Checkpoint, Compute, Config, Reference
    from stepvad.detector import Detector
    from stepvad.errors import (
        ConfigError,
        DataError,
        MissingExtraError,
        ModelFileError,
        StepvadError,
    )
    from stepvad.events.calibration import calibrate
    from stepvad.events.rules import Event, Rules, find_events
    from stepvad.events.threshold import Threshold
    from stepvad.explain import Explanation
    from stepvad.formats import read_clip, read_clips, write_clip, write_clips
    from stepvad.formats.tables import (
        clips_from_table,
        clips_to_table,
        scores_from_table,
        scores_to_table,
    )
    from stepvad.model.scoring import Scores, WindowScores
    from stepvad.poses import Clip, Pose, Track
    from stepvad.skeletons import Skeleton
    from stepvad.stream import Stream, update_all
    from stepvad.tracker import Tracker
    from stepvad.windows.views import Windows

__version__: str

_HOME = {
    "Checkpoint": "config",
    "Clip": "poses",
    "Compute": "config",
    "Config": "config",
    "ConfigError": "errors",
    "DataError": "errors",
    "Detector": "detector",
    "Event": "events.rules",
    "Explanation": "explain",
    "MissingExtraError": "errors",
    "ModelFileError": "errors",
    "Pose": "poses",
    "Reference": "config",
    "Rules": "events.rules",
    "Scores": "model.scoring",
    "Skeleton": "skeletons",
    "StepvadError": "errors",
    "Stream": "stream",
    "Threshold": "events.threshold",
    "Track": "poses",
    "Tracker": "tracker",
    "WindowScores": "model.scoring",
    "Windows": "windows",
    "calibrate": "events.calibration",
    "clips_from_table": "formats.tables",
    "clips_to_table": "formats.tables",
    "find_events": "events.rules",
    "read_clip": "formats",
    "read_clips": "formats",
    "scores_from_table": "formats.tables",
    "scores_to_table": "formats.tables",
    "update_all": "stream",
    "write_clip": "formats",
    "write_clips": "formats",
}

__all__ = [
    "Checkpoint",
    "Clip",
    "Compute",
    "Config",
    "ConfigError",
    "DataError",
    "Detector",
    "Event",
    "Explanation",
    "MissingExtraError",
    "ModelFileError",
    "Pose",
    "Reference",
    "Rules",
    "Scores",
    "Skeleton",
    "StepvadError",
    "Stream",
    "Threshold",
    "Track",
    "Tracker",
    "WindowScores",
    "Windows",
    "calibrate",
    "clips_from_table",
    "clips_to_table",
    "find_events",
    "read_clip",
    "read_clips",
    "scores_from_table",
    "scores_to_table",
    "update_all",
    "write_clip",
    "write_clips",
]


if not TYPE_CHECKING:  # type checkers see only the imports above

    def __getattr__(name: str) -> object:
        """Load a public name on first use, which keeps `import stepvad` fast."""
        if name == "__version__":
            from importlib.metadata import version

            return version("stepvad")
        if name not in _HOME:
            raise AttributeError(f"module 'stepvad' has no attribute {name!r}")
        value = getattr(import_module(f"stepvad.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, "__version__"])
