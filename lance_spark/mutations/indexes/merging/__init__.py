"""Segments of indexes merged from their files, without the rows of the table."""
