"""Simulated footage and archives for studies."""
