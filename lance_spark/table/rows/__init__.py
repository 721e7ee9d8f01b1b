"""Rows of a fragment: deletion files, stable row ids, row versions, row addresses."""
