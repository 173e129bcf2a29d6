"""Header of a track file: the skeleton, and the rate and length of each clip.

It is stored in the metadata of the Parquet file, as JSON under the key `stepvad`:
`{"format": 1, "skeleton": {"name", "joints", "bones"}, "clips": {name: {"fps", "n_frames"}}}`,
with an optional `"origin"`, how the poses were produced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from stepvad.errors import DataError
from stepvad.formats import limits
from stepvad.formats.jsonfile import parse, shown, whole_number
from stepvad.skeletons import Skeleton

FORMAT = 1
"""Version of the format."""


@dataclass(frozen=True, slots=True)
class ClipFacts:
    """Facts about a clip that its rows cannot express: its rate, if known, and its length."""

    fps: float | None
    n_frames: int


@dataclass(frozen=True, slots=True)
class Header:
    """The metadata of a track file; clips are in the order in which they were written."""

    skeleton: Skeleton
    clips: dict[str, ClipFacts]
    origin: Mapping[str, object] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The header as JSON in UTF-8."""
        skeleton = self.skeleton
        document: dict[str, object] = {
            "format": FORMAT,
            "skeleton": {
                "name": skeleton.name,
                "joints": skeleton.joints,
                "bones": skeleton.bones,
            },
            "clips": {
                name: {"fps": facts.fps, "n_frames": facts.n_frames}
                for name, facts in self.clips.items()
            },
        }
        if self.origin:
            document["origin"] = dict(self.origin)
        return json.dumps(document).encode()

    @classmethod
    def decode(cls, data: bytes) -> Header:
        """Parse and validate a header in JSON.

        Raises:
            DataError: If it is not JSON, is incomplete, or has another format version.
        """
        match parse(data):
            case {"format": int(number)} if number != FORMAT:
                raise DataError(
                    f"metadata: expected track format {FORMAT}, got {number}",
                    hint="install the version of stepvad that wrote it",
                )
            case {
                "format": int(number),
                "skeleton": {"name": str(name), "joints": list(joints), "bones": list(bones)},
                "clips": dict(clips),
                **rest,
            } if not isinstance(number, bool):
                for text in (name, *clips):
                    limits.check_name(text)
                skeleton = Skeleton(name, _joints(joints), tuple(map(_bone, bones)))
                origin = rest.get("origin")
                facts = {clip: _facts(clip, clips[clip]) for clip in clips}
                return cls(skeleton, facts, origin if isinstance(origin, dict) else {})
            case other:
                raise DataError(
                    "metadata: expected format, skeleton (name, joints, bones) and clips, "
                    f"got {shown(other)}",
                    hint="write the file again, or without its stepvad metadata",
                )


def _joints(joints: list[object]) -> tuple[str, ...]:
    """Joint names, checked to be text."""
    limits.check_joints(len(joints))
    names = tuple(joint for joint in joints if isinstance(joint, str))
    for name in names:
        limits.check_name(name)
    if len(names) != len(joints):
        raise DataError(
            f"metadata: expected joint names, got {shown(joints)}",
            hint="name every joint in text",
        )
    return names


def _bone(bone: object) -> tuple[int, int]:
    """A pair of joint numbers; `Skeleton` checks that the joints exist."""
    match bone:
        case [int(a), int(b)]:
            return int(a), int(b)
        case _:
            raise DataError(
                f"metadata: expected a bone as two joint numbers, got {shown(bone)}",
                hint="number the joints from 0",
            )


def _facts(clip: str, facts: object) -> ClipFacts:
    """Rate and length of a clip; `Clip` checks that its tracks fit."""
    match facts:
        case {"fps": None | float() | int() as fps, "n_frames": int(n_frames)}:
            if (fps is None or 0 < fps < math.inf) and whole_number(n_frames) is not None:
                return ClipFacts(fps, n_frames)
    raise DataError(
        f"metadata of clip {clip!r}: expected fps (a positive number or null) and n_frames, "
        f"got {shown(facts)}",
        hint="write the file again, or without its stepvad metadata",
    )
