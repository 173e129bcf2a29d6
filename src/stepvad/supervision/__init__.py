"""What keeps long-running work going: stages and heartbeats, child processes, back-off, logs."""
