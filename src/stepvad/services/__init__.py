"""Processes that run until SIGTERM: a site, an edge, the page of a fleet's events."""
