"""What the measuring scripts share; the product knows nothing of it."""
