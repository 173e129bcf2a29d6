"""The bus between edges and workers: subjects, streams, consumers, leases, on NATS."""
