"""Why a score is high: which joints, which moment, and the nearest normal motion."""

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
