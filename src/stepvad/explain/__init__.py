"""Explanations of a high score: joints, moments, and the nearest normal motion."""

from stepvad.explain.event import Place, explain, explain_highest, highest
from stepvad.explain.explanation import Explanation, ViewShare
from stepvad.explain.words import BodyPart

__all__ = [
    "BodyPart",
    "Explanation",
    "Place",
    "ViewShare",
    "explain",
    "explain_highest",
    "highest",
]
