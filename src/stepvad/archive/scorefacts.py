"""What a file of scores says of itself: model, inputs, clips, counts; typed, with a format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from stepvad.config import Engine
from stepvad.errors import DataError
from stepvad.payload import Fields, JsonObject, check_version
from stepvad.poses import MAX_FPS

FORMAT = 1
"""Number of the layout, in files of scores and in the manifest."""


@dataclass(frozen=True, slots=True)
class ScoreIdentity:
    """What scores must have in common to stand in one place."""

    model_sha256: str
    engine: Engine | str
    energies: bool

    @classmethod
    def from_fields(cls, own: Fields) -> ScoreIdentity:
        """The identity among the fields of a file of scores or a manifest."""
        return cls(own.text("model_sha256"), own.text("engine"), own.flag("energies"))


@dataclass(frozen=True, slots=True)
class InputFacts:
    """A file of poses that was scored; the digest is missing where it could not be read."""

    name: str
    size: int
    sha256: str | None


@dataclass(slots=True)
class ClipWindows:
    """A clip that was scored; `windows` grows while it is."""

    fps: float | None
    n_frames: int
    windows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFacts:
    """The metadata of a file of scores."""

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
    """What was mended in the poses."""

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
        """The facts that `to_json` made these values of."""
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
    """The files of poses in a list of objects."""
    made = []
    for one in own.items("inputs"):
        entry = Fields.of("input", one)
        digest = None if entry.value("sha256") is None else entry.text("sha256")
        made.append(InputFacts(entry.text("name"), entry.whole("size"), digest))
    return tuple(made)


def texts_of(own: Fields, name: str) -> dict[str, str]:
    """Texts by name."""
    part = own.fields(name)
    return {key: part.text(key) for key in part.values}


def counts_of(own: Fields) -> dict[str, int]:
    """What was mended, by name: another version may count more or fewer things."""
    part = own.fields("counts")
    return {key: part.whole(key) for key in part.values}


def _clip(own: Fields) -> ClipWindows:
    fps = None if own.value("fps") is None else own.number("fps")
    if fps is not None and not 0 < fps < MAX_FPS:
        raise DataError(f"{own.what}: expected a rate above 0 as fps, got {fps}")
    return ClipWindows(fps, own.whole("n_frames"), own.whole("windows"))
