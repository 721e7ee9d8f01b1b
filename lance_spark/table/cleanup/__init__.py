"""Cleanup: removes old versions and the files that only they refer to."""
