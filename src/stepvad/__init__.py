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

_NAMES = {
    "config": ("Checkpoint", "Compute", "Config", "Reference"),
    "detector": ("Detector",),
    "errors": ("ConfigError", "DataError", "MissingExtraError", "ModelFileError", "StepvadError"),
    "events.calibration": ("calibrate",),
    "events.rules": ("Event", "Rules", "find_events"),
    "events.threshold": ("Threshold",),
    "explain": ("Explanation",),
    "formats": ("read_clip", "read_clips", "write_clip", "write_clips"),
    "formats.tables": (
        "clips_from_table",
        "clips_to_table",
        "scores_from_table",
        "scores_to_table",
    ),
    "model.scoring": ("Scores", "WindowScores"),
    "poses": ("Clip", "Pose", "Track"),
    "skeletons": ("Skeleton",),
    "stream": ("Stream", "update_all"),
    "tracker": ("Tracker",),
    "windows.views": ("Windows",),
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
        home = next((module for module, names in _NAMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module 'stepvad' has no attribute {name!r}")
        value = getattr(import_module(f"stepvad.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, "__version__"])
