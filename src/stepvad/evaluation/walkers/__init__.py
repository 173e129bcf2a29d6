"""Synthetic people in front of a camera: they walk and stand, and act abnormally in test clips."""

from stepvad.evaluation.walkers.dataset import make, write_dataset
from stepvad.evaluation.walkers.motion import FPS
from stepvad.evaluation.walkers.motion import WalkerEvent as Event
from stepvad.evaluation.walkers.scenes import EVENTS, make_clips

__all__ = ["EVENTS", "FPS", "Event", "make", "make_clips", "write_dataset"]
