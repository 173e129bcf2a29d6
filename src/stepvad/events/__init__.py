"""Scores become events: rules, thresholds with a promise, marks, and drift."""
