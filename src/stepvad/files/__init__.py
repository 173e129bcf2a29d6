"""Safe file access: atomic writes, size-limited reads, secrets by reference."""
