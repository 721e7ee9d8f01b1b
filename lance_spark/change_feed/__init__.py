"""The change feed: which rows each version inserted, updated and deleted, as batches."""
