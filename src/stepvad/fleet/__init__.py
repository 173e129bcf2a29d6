"""Many sites: their events in one place, and what they should run."""
