"""Cameras at the edge of a fleet: poses in batches, buffered while the broker is unreachable."""
