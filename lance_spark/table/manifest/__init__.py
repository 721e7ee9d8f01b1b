"""Manifests: one version of a table, and how the next one is built."""
