"""Readers and writers that copy rows or columns of a table into new data files."""
