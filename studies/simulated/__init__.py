"""Simulated cameras, and a fleet that takes what they send."""
