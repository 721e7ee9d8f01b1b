"""Indexes of a table: created, listed, described and dropped."""
