"""Video in, calibrated alerts out, measured against labels in seconds."""
