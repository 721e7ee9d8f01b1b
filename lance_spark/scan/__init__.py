"""From a fragment to record batches."""
