"""Upserts with low latency: shards with logs and SSTables beside a table, and reads over them."""
