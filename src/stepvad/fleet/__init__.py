"""Many hosts: sites publish poses on a bus, workers score them, a writer keeps the events.

| module | what it is |
|---|---|
| `wire` | what travels: frames with poses, events |
| `subjects` | names on the bus, and which shard a camera belongs to |
| `bus` | what a bus does: publish, consume, acknowledge, lease |
| `nats` | NATS JetStream as such a bus; nothing else knows NATS |
| `settings` | the settings of every role, from TOML |
| `worker` | takes shards, scores their cameras, announces events |
| `edge` | a site that sends poses: `packing`, `buffer`, `publishing`; `sink`: that sends events |
| `writer` | events from the bus into `postgres`; `changes`: which of two messages is newer |
| `shelf` | the events in PostgreSQL for a page |
| `line`, `background` | a bus, or any event loop, in a thread of its own |
"""
