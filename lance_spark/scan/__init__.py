"""Scans and takes: predicates, pruning, and the readers that turn fragments into record batches."""
