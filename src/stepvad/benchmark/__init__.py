"""Data with known truth, and the frame-level protocol that measures a detector on it (Sec. 4.1)."""
