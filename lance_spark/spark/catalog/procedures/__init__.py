"""Procedures of a catalog, and the statements that stand for their calls."""
