"""Writes to shards: claims, logs, and the writer that puts and deletes rows."""
