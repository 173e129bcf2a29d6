"""The events of a site in SQLite: what is stored, waits, is backed up, restored, deleted."""
