"""Tables of the event store."""

from __future__ import annotations

from stepvad.files.sqlitefile import Layout

_TABLES = """
CREATE TABLE epochs (camera_key TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE events (
    id TEXT PRIMARY KEY,
    camera TEXT NOT NULL,
    label TEXT NOT NULL,
    start_time REAL NOT NULL,
    end_time REAL,
    changed REAL NOT NULL,
    stored REAL NOT NULL,
    marked TEXT,
    marked_at REAL,
    reviewed_at REAL,
    reviewed_by TEXT NOT NULL DEFAULT '',
    body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX events_by_time ON events (start_time, id);
CREATE INDEX events_by_camera ON events (camera, start_time, id);
CREATE INDEX events_open ON events (id) WHERE end_time IS NULL;
CREATE INDEX events_marked ON events (id) WHERE marked IS NOT NULL;
CREATE INDEX events_by_age ON events (stored);
CREATE INDEX events_reviewed ON events (id) WHERE reviewed_at IS NOT NULL;
CREATE TABLE poses (
    id TEXT PRIMARY KEY REFERENCES events (id) ON DELETE CASCADE,
    stored REAL NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE explanations (
    id TEXT PRIMARY KEY REFERENCES events (id) ON DELETE CASCADE,
    stored REAL NOT NULL,
    body TEXT NOT NULL
);
CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    sink TEXT NOT NULL,
    event_id TEXT NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    created REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    next_try REAL NOT NULL DEFAULT 0,
    error TEXT
);
CREATE INDEX outbox_by_sink ON outbox (sink, seq);
CREATE INDEX outbox_by_event ON outbox (event_id);
CREATE TABLE dead_letters (
    seq INTEGER PRIMARY KEY,
    sink TEXT NOT NULL,
    event_id TEXT NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    created REAL NOT NULL,
    refused REAL NOT NULL,
    error TEXT NOT NULL
);
CREATE INDEX dead_letters_by_event ON dead_letters (event_id);
CREATE TABLE clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    time REAL NOT NULL,
    held_s REAL NOT NULL,
    since REAL NOT NULL
)
"""

EVENT_STORE = Layout(
    what="an event store",
    application_id=0x53564144,  # "SVAD"
    tables=_TABLES,
    hint="give the data directory of a site, or a file that stepvad events backup wrote",
)
