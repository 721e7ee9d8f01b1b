"""Sets a MemWAL up, describes its shards, and takes it from the table."""
