"""Fresh reads: scans of a base table with the rows of its MemWAL."""
