"""Figures of studies: curves, dots, heat maps and sheets of skeletons."""
