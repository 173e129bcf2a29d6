"""The event store of a site in SQLite: events, outbox, backup, restore and retention."""
