"""Blob columns: their shapes in schemas, files and batches, and how their bytes are written."""
