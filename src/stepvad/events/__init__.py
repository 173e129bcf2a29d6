"""Scores become events: rules, limits for a budget, exceptions by marks, and drift."""
