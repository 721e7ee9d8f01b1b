"""Checks of the files of an index against the column."""
