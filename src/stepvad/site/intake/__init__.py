"""Pose intake: cameras and files, pose workers, frame queues, time slots, live status."""
