"""Header of a track file: the skeleton, and the rate and length of each clip.

It is stored in the metadata of the Parquet file, as JSON under the key `stepvad`:
`{"format": 1, "skeleton": {"name", "joints", "bones"}, "clips": {name: {"fps", "n_frames"}}}`,
with `"origin"`, how the poses were produced, if known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from stepvad import codec
from stepvad.codec import Count, NewerVersionError, Positive
from stepvad.errors import DataError
from stepvad.formats import limits
from stepvad.skeletons import Skeleton


@dataclass(frozen=True, slots=True)
class ClipFacts:
    """Facts about a clip that its rows cannot express: its rate, if known, and its length."""

    fps: Positive | None
    n_frames: Count


@dataclass(frozen=True, slots=True)
class Header:
    """The metadata of a track file; clips are in the order in which they were written."""

    skeleton: Skeleton
    clips: dict[Annotated[str, Meta(max_length=limits.MAX_NAME)], ClipFacts]
    origin: dict[str, Any] = field(default_factory=dict)
    format: Literal[1] = 1

    def __post_init__(self) -> None:
        """Check the number of joints and the lengths of names."""
        limits.check_joints(self.skeleton.V)
        for name in (self.skeleton.name, *self.skeleton.joints):
            limits.check_name(name)

    @classmethod
    def decode(cls, data: bytes) -> Header:
        """Parse and validate a header in JSON."""
        try:
            return codec.decode(cls, data, "metadata")
        except NewerVersionError:
            raise
        except DataError as error:
            hint = error.hint or "write the file again, or without its stepvad metadata"
            raise DataError(error.problem, hint=hint) from error
