"""Commit handlers: the atomic creation of a manifest on each kind of store."""
