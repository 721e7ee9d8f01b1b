"""Merges through Spark: builder, clauses, plan, join, casts and tasks."""
