"""What studies measure beside the protocol: events found, densities by other means."""
