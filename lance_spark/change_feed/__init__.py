"""The change feed: the rows that each version inserted, updated and deleted."""
