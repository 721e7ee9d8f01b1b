"""Reads of a table with the rows of its MemWAL."""
