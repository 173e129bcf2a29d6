"""Why a score is high: which joints, which moment, and the nearest normal motion."""

from stepvad.explain.explanation import (
    Explanation,
    Place,
    explain,
    explain_event,
    explain_highest,
    highest,
)
from stepvad.explain.parts import BodyPart

__all__ = [
    "BodyPart",
    "Explanation",
    "Place",
    "explain",
    "explain_event",
    "explain_highest",
    "highest",
]
