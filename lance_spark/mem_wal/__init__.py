"""MemWAL: upserts with low latency into logs beside a table, and reads that see them."""
