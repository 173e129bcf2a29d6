"""Cameras in, events out, on one machine."""
