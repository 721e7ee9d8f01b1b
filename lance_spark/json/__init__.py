"""JSON columns: JSONB, paths, functions, and their fields in schemas."""
