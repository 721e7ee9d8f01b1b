"""Bytes: every store behind fsspec, and the atomic creation that commits need."""
