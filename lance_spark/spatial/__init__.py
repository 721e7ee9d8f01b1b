"""Geometries: literals, columns, and conditions on how they lie to one another."""
