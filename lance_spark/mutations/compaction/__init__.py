"""Compaction: few large fragments replace many small fragments; rows are reordered."""
