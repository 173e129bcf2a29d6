"""Typed, versioned metadata of a score file: model, inputs, clips, counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from stepvad.codec import Count
from stepvad.poses import MAX_FPS

FORMAT = 1
"""Layout version of score files and manifests."""


@dataclass(frozen=True, slots=True)
class ScoreIdentity:
    """Properties that all scores in one place must share."""

    model_sha256: str
    engine: str
    energies: bool

    @property
    def identity(self) -> ScoreIdentity:
        """These properties alone."""
        return ScoreIdentity(self.model_sha256, self.engine, self.energies)


@dataclass(frozen=True, slots=True)
class InputFacts:
    """A pose file that was scored; the digest is None if the file could not be scored."""

    name: str
    size: Count
    sha256: str | None


@dataclass(slots=True)
class ClipWindows:
    """A clip and its number of windows, updated during scoring."""

    fps: Annotated[float, Meta(gt=0, lt=MAX_FPS)] | None
    n_frames: Count
    windows: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFacts(ScoreIdentity):
    """Metadata of a score file."""

    stepvad: str
    """Version of the library."""
    inputs: tuple[InputFacts, ...]
    failed: dict[str, str]
    """Pose files without scores, and why."""
    clips: dict[str, ClipWindows]
    windows: Count
    flat_windows: Count
    counts: dict[str, Count]
    """Repairs made to the poses."""
    format: Literal[1] = 1
