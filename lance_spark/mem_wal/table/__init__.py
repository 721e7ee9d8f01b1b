"""Reads and writes the state of a MemWAL: paths, shard manifests, details of the index."""
