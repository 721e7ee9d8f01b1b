"""Mutations of rows: delete, update, merge and partial overwrite."""
