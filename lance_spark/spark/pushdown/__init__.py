"""Push-down: Spark passes columns, filters, limits and aggregates to the scan."""
