"""Plots: timelines, sheets of skeletons, curves and heat maps."""
