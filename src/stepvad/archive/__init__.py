"""Stored poses in Parquet, scored shard by shard and scored again when a model changes."""

from stepvad.archive.trackfiles import score_files

__all__ = ["score_files"]
