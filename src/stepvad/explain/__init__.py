"""Why a score is high: which joints, which moment, and the nearest normal motion."""

from stepvad.explain.explanation import (
    Explanation,
    Place,
    explain,
    explain_event,
    explain_highest,
    highest,
)
from stepvad.explain.parts import Part

__all__ = [
    "Explanation",
    "Part",
    "Place",
    "explain",
    "explain_event",
    "explain_highest",
    "highest",
]
