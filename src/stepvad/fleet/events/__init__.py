"""Events of a fleet in PostgreSQL: written once, read by the page."""
