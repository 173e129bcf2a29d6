"""Many sites: poses and events on a bus, workers that score, events in PostgreSQL."""
