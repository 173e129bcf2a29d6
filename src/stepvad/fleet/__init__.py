"""Many hosts: sites publish poses on a bus, workers score them, a writer stores the events.

| module | purpose |
|---|---|
| `edge` | a site that sends poses in batches and buffers them; a sink that sends its events |
| `broker` | the bus protocol (`bus`) and its implementation on NATS JetStream, the only NATS code |
| `worker` | leases shards of cameras, scores their poses, publishes events |
| `events` | writes events from the bus to PostgreSQL and reads them for a page |
| `wire` | message formats: frames with poses, events |
| `event_message` | validates a change of an event and decides which of two is newer |
| `subjects` | names on the bus, and which shard a camera belongs to |
| `settings` | the settings of every role, from TOML |
| `event_loop` | an event loop in its own thread, and cancelling its tasks |
"""
