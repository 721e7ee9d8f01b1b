"""Fragments, their data files, and the writer of new fragments."""
