"""Mutations of columns: add, alter, drop and fill columns."""
