"""Many hosts: sites publish poses on a bus, workers score them, a writer keeps the events.

| room | what it is |
|---|---|
| `edge` | a site that sends poses in batches and buffers them; a sink that sends its events |
| `broker` | what a bus does (`bus`), and NATS JetStream as such a bus; nothing else knows NATS |
| `worker` | leases shards of cameras, scores their poses, announces events |
| `events` | events from the bus into PostgreSQL, and out of it for a page |
| `wire` | what travels: frames with poses, events |
| `event_message` | a change of an event, checked, and which of two is newer |
| `subjects` | names on the bus, and which shard a camera belongs to |
| `settings` | the settings of every role, from TOML |
| `event_loop`, `tasks` | an event loop in a thread of its own, and the end of its tasks |
"""
