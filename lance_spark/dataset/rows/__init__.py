"""Rows of a `Dataset` by position or id, as DataFrames, as bytes of blobs, and by SQL."""
