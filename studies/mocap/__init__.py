"""CMU motion capture seen by virtual cameras: real motion, simulated footage, exact labels."""
