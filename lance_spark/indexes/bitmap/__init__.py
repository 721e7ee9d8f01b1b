"""BITMAP indexes: a set of rows for each value."""
