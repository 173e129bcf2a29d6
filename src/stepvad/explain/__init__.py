"""Why a score is high: which joints, which moment, and the nearest normal motion."""

import warnings
from typing import TYPE_CHECKING

from stepvad.explain.explanation import Explanation, ViewShare
from stepvad.explain.parts import BodyPart
from stepvad.explain.places import Place, explain, explain_event, explain_highest, highest

__all__ = [
    "BodyPart",
    "Explanation",
    "Place",
    "ViewShare",
    "explain",
    "explain_event",
    "explain_highest",
    "highest",
]


if not TYPE_CHECKING:  # a type checker knows the new name only

    def __getattr__(name: str) -> object:
        """A name of before, with a warning."""
        if name == "Part":
            warnings.warn(
                "stepvad.explain.Part is deprecated since 0.1, removed in 0.3; use BodyPart",
                DeprecationWarning,
                stacklevel=2,
            )
            return BodyPart
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
