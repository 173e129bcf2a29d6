"""CMU motion capture seen through virtual cameras: real motion, simulated footage, known truth."""
