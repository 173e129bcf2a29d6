"""Supervision of long-running work: stages and heartbeats, child processes, back-off, logs."""
