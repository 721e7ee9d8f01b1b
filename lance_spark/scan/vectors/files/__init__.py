"""The files of vector indexes."""
