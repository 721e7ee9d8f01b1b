"""Merges through Spark: builder, clauses, join, task and commit."""
