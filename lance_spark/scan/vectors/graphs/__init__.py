"""The graphs of vector indexes (HNSW)."""
