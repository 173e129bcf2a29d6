"""Workers lease shards of cameras, score their poses and publish their events."""
