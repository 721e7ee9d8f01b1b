"""Blobs: their bytes are loaded after the rows of a scan are selected."""
