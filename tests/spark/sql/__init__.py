"""Statements of Spark SQL on tables of a catalog."""
