"""Types and batches between Lance tables, Arrow and Spark."""
