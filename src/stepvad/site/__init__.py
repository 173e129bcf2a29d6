"""One machine that watches cameras for months: pipeline, store, sinks, delivery."""
