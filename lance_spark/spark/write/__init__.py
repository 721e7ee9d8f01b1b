"""Writes through Spark: executors write data files, the driver commits them."""
