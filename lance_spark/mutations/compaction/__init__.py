"""Compaction: few large fragments replace many small ones; rows are reordered."""
