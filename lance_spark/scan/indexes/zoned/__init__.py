"""Indexes of zones: runs of some thousand rows of one fragment."""
