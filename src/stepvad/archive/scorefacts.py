"""Typed, versioned metadata of a score file: model, inputs, clips, counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from stepvad.codec import Fields, JsonObject, check_version
from stepvad.config import Engine
from stepvad.errors import DataError
from stepvad.poses import MAX_FPS

FORMAT = 1
"""Layout version of score files and manifests."""


@dataclass(frozen=True, slots=True)
class ScoreIdentity:
    """Properties that all scores in one place must share."""

    model_sha256: str
    engine: Engine | str
    energies: bool

    @classmethod
    def from_fields(cls, own: Fields) -> ScoreIdentity:
        """Parse the identity from the fields of a score file or a manifest."""
        return cls(own.text("model_sha256"), own.text("engine"), own.flag("energies"))


@dataclass(frozen=True, slots=True)
class InputFacts:
    """A pose file that was scored; the digest is None if the file could not be scored."""

    name: str
    size: int
    sha256: str | None


@dataclass(slots=True)
class ClipWindows:
    """A clip and its number of windows, updated during scoring."""

    fps: float | None
    n_frames: int
    windows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFacts:
    """Metadata of a score file."""

    identity: ScoreIdentity
    stepvad: str
    """Version of the library."""
    inputs: tuple[InputFacts, ...]
    failed: Mapping[str, str]
    """Pose files without scores, and why."""
    clips: Mapping[str, ClipWindows]
    windows: int
    flat_windows: int
    counts: Mapping[str, int]
    """Repairs made to the poses."""

    def to_json(self) -> JsonObject:
        """Plain values for JSON."""
        return {
            "format": FORMAT,
            **asdict(self.identity),
            "stepvad": self.stepvad,
            "inputs": [asdict(one) for one in self.inputs],
            "failed": dict(self.failed),
            "clips": {name: asdict(clip) for name, clip in self.clips.items()},
            "windows": self.windows,
            "flat_windows": self.flat_windows,
            "counts": dict(self.counts),
        }

    @classmethod
    def from_json(cls, facts: object) -> ScoreFacts:
        """Parse the output of `to_json`."""
        own = Fields.of("scores", facts)
        check_version("scores", own.value("format"), FORMAT)
        return cls(
            identity=ScoreIdentity.from_fields(own),
            stepvad=own.text("stepvad"),
            inputs=inputs_of(own),
            failed=texts_of(own, "failed"),
            clips={name: _clip(one) for name, one in own.objects("clips").items()},
            windows=own.whole("windows"),
            flat_windows=own.whole("flat_windows"),
            counts=counts_of(own),
        )


def inputs_of(own: Fields) -> tuple[InputFacts, ...]:
    """Parse the list of pose files."""
    made = []
    for one in own.items("inputs"):
        entry = Fields.of("input", one)
        digest = None if entry.value("sha256") is None else entry.text("sha256")
        made.append(InputFacts(entry.text("name"), entry.whole("size"), digest))
    return tuple(made)


def texts_of(own: Fields, name: str) -> dict[str, str]:
    """Parse an object of strings."""
    part = own.fields(name)
    return {key: part.text(key) for key in part.values}


def counts_of(own: Fields) -> dict[str, int]:
    """Parse the repair counts; other versions may have more or fewer names."""
    part = own.fields("counts")
    return {key: part.whole(key) for key in part.values}


def _clip(own: Fields) -> ClipWindows:
    fps = None if own.value("fps") is None else own.number("fps")
    if fps is not None and not 0 < fps < MAX_FPS:
        raise DataError(f"{own.what}: expected a rate above 0 as fps, got {fps}")
    return ClipWindows(fps, own.whole("n_frames"), own.whole("windows"))
