"""Push-down: Spark hands columns, filters, limits and aggregates to the scan."""
