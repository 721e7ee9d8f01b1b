"""Pruning by statistics, and aggregates that indexes and the manifest answer."""
