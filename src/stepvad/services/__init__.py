"""Long-running processes: a site, an edge, the page of a fleet's events."""
