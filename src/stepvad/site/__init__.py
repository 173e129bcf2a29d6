"""A site, one machine that watches cameras for months: pipeline, store, sinks, delivery."""
