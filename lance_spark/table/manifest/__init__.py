"""Manifests: their file format, names and history, and the builder of the next manifest."""
