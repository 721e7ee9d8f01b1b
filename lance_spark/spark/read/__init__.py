"""Reads through Spark: the driver plans partitions, executors decode them."""
