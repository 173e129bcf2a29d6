"""A footage set: labelled videos, or their poses, and which of them are fitted on and tested."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from stepvad.codec import JsonObject, Number, from_plain
from stepvad.errors import DataError
from stepvad.files import replacing
from stepvad.formats.reading import load_json
from stepvad.video.extract import ALL_FRAMES, FrameRange

VERSION = 1
"""Layout of the description of a footage set."""
MAX_SPEED = 100
Use = Literal["fit", "calibrate", "test"]
Times = tuple[tuple[float, float], ...]
_NAME = re.compile(r"\w[\w.-]*")
_FRAMES = re.compile("([0-9]{0,9}):([0-9]{0,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FootageClip:
    """A video or a file of poses, and what happens in it.

    A piece of a video may be played faster or backwards; its time starts with its first frame.
    """

    name: str
    path: Path
    is_video: bool = True
    frames: FrameRange = ALL_FRAMES
    speed: int = 1
    """Takes every n-th frame; the frame rate stays."""
    backwards: bool = False
    fps: float | None = None
    """Frame rate of poses whose file does not state it."""
    group: str = ""
    """Clips of one group show the same act or place: a fold tests all of them or none."""
    events: Times | Literal["whole"] = ()
    """Begin and end of each event, in seconds; `whole` if only the clip is labelled."""

    def __post_init__(self) -> None:
        """Reject labels and pieces that make no sense."""
        what = f"clip {self.name!r:.60}"
        if not _NAME.fullmatch(self.name):
            raise DataError(
                f"{what}: expected a name of letters, digits, '.', '_' and '-'",
                hint="its poses are kept in a file of this name",
            )
        if not 1 <= self.speed <= MAX_SPEED:
            raise DataError(f"{what}: expected a speed from 1 to {MAX_SPEED}, got {self.speed}")
        if not self.is_video and self.is_piece:
            raise DataError(
                f"{what}: expected a video for frames, speed and backwards, got poses",
                hint="name the video, or leave them out",
            )
        for begin, end in self.events if self.events != "whole" else ():
            if not 0 <= begin < end < math.inf:
                raise DataError(
                    f"{what}: expected events as begin and end in seconds, got {begin:g}, {end:g}"
                )

    @property
    def is_piece(self) -> bool:
        """Whether it is less than a whole video, or played in another way."""
        return self.frames != ALL_FRAMES or self.speed != 1 or self.backwards

    @property
    def is_abnormal(self) -> bool:
        """Whether anything labelled happens in it."""
        return bool(self.events)

    @property
    def kept_with(self) -> str:
        """Its group; a clip without one is its own."""
        return self.group or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Names of the clips to fit, calibrate and test one detector on."""

    name: str
    fit: tuple[str, ...]
    calibrate: tuple[str, ...]
    test: tuple[str, ...]

    def by_use(self) -> dict[Use, tuple[str, ...]]:
        """The clips of each use."""
        return {"fit": self.fit, "calibrate": self.calibrate, "test": self.test}


@dataclass(frozen=True, slots=True, kw_only=True)
class FootageSet:
    """Clips by name and one or more folds of them."""

    name: str
    clips: Mapping[str, FootageClip] = field(repr=False)
    folds: Sequence[Fold]
    note: str = ""
    """How the clips were chosen."""

    def __post_init__(self) -> None:
        """Check the folds: known clips, each once, and no group on both sides."""
        if not self.folds:
            raise DataError(f"footage set {self.name}: expected at least one fold, got none")
        for fold in self.folds:
            self._check(fold)

    def used(self) -> list[FootageClip]:
        """All clips of any fold, in the set's order."""
        names = {name for fold in self.folds for some in fold.by_use().values() for name in some}
        return [clip for name, clip in self.clips.items() if name in names]

    def _check(self, fold: Fold) -> None:
        what = f"footage set {self.name}, fold {fold.name}"
        tested = {self.clips[name].kept_with for name in fold.test if name in self.clips}
        seen: set[str] = set()
        for use, names in fold.by_use().items():
            if not names:
                raise DataError(f"{what}: expected clips to {use}, got none")
            for name in names:
                if name not in self.clips or name in seen:
                    got = "twice" if name in seen else "which the set does not have"
                    raise DataError(f"{what}: expected distinct clips, got {name!r:.60} {got}")
                seen.add(name)
                if use != "test":
                    self._check_learned(what, use, self.clips[name], tested)

    def _check_learned(self, what: str, use: Use, clip: FootageClip, tested: set[str]) -> None:
        """Reject a clip that a detector must not have seen."""
        if clip.is_abnormal:
            raise DataError(
                f"{what}: expected normal clips to {use}, got {clip.name} with events",
                hint="a detector learns from normal footage alone",
            )
        if clip.kept_with in tested:
            raise DataError(
                f"{what}: expected a group to be tested or learned from, got {clip.kept_with} "
                f"to {use} and to test",
                hint="keep the clips of a group together",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClipEntry:
    video: str | None = None
    poses: str | None = None
    frames: str = ":"
    speed: int = 1
    backwards: bool = False
    fps: Number | None = None
    group: str = ""
    events: Literal["whole"] | tuple[tuple[Number, Number], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoldEntry:
    fit: tuple[str, ...]
    calibrate: tuple[str, ...]
    test: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SetEntry:
    version: Literal[1] = VERSION
    name: str
    note: str = ""
    clips: dict[str, _ClipEntry]
    folds: dict[str, _FoldEntry]


def read(path: Path) -> FootageSet:
    """Read a description; paths are relative to its directory."""
    try:
        facts = load_json(path)
        own = from_plain(_SetEntry, facts, "footage set")
        _only("footage set", facts, _SetEntry)
        for name, one in facts["clips"].items():
            _only(f"clip {name!r:.40}", one, _ClipEntry)
        return FootageSet(
            name=own.name,
            clips={name: _clip(name, one, path.parent) for name, one in own.clips.items()},
            folds=[Fold(name=name, **asdict(one)) for name, one in own.folds.items()],
            note=own.note,
        )
    except DataError as error:
        where = "" if str(path) in error.problem else str(path)
        raise (error.located(where) if where else error) from error


def write(footage: FootageSet, path: Path) -> None:
    """Write a description that `read` reads."""
    facts = {
        "version": VERSION,
        "name": footage.name,
        "note": footage.note,
        "clips": {clip.name: _facts(clip) for clip in footage.used()},
        "folds": {
            fold.name: {use: [*names] for use, names in fold.by_use().items()}
            for fold in footage.folds
        },
    }
    with replacing(path) as file:
        file.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")


def _clip(name: str, own: _ClipEntry, directory: Path) -> FootageClip:
    if (own.video is None) == (own.poses is None):
        raise DataError(f"clip {name!r:.40}: expected a video or poses, got both or neither")
    return FootageClip(
        name=name,
        path=directory / (own.video or own.poses or ""),
        is_video=own.video is not None,
        frames=_frames(name, own.frames),
        speed=own.speed,
        backwards=own.backwards,
        fps=own.fps,
        group=own.group,
        events=own.events,
    )


def _frames(name: str, text: str) -> FrameRange:
    found = _FRAMES.fullmatch(text)
    first, end = (int(found[1] or 0), int(found[2]) if found[2] else None) if found else (0, 0)
    if end is not None and end <= first:
        raise DataError(f"clip {name!r:.40}: expected frames A:B with A below B, got {text!r:.40}")
    return FrameRange(first, end)


def _only(what: str, facts: Mapping[str, object], kind: Any) -> None:
    """Reject unknown fields: a misspelt one would be ignored."""
    known = [one.name for one in fields(kind)]
    unknown = [name for name in facts if name not in known]
    if unknown:
        raise DataError(
            f"{what}: expected {', '.join(known)}, got {unknown[0]!r:.40}",
            hint="check the spelling",
        )


def _facts(clip: FootageClip) -> JsonObject:
    facts: JsonObject = {"video" if clip.is_video else "poses": str(clip.path.absolute())}
    if clip.frames != ALL_FRAMES:
        facts["frames"] = str(clip.frames)
    if clip.speed != 1:
        facts["speed"] = clip.speed
    if clip.backwards:
        facts["backwards"] = True
    if clip.fps is not None:
        facts["fps"] = clip.fps
    if clip.group:
        facts["group"] = clip.group
    if clip.events:
        facts["events"] = "whole" if clip.events == "whole" else [[*pair] for pair in clip.events]
    return facts
