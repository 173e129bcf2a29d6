"""Stored poses in Parquet, scored shard by shard and scored again when a model changes."""
