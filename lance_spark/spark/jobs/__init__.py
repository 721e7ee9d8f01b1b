"""Spark jobs that run tasks of this package."""
