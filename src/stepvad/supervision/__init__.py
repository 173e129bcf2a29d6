"""What keeps long-running work going: pauses between tries."""
