"""Video to tracked poses: files and cameras, pose estimation, tracking."""
