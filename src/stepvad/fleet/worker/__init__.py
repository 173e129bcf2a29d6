"""Workers: a shard of cameras is leased, its poses are scored, its events are published."""
