"""Files with care: written whole or not at all, read within limits, secrets by reference."""
