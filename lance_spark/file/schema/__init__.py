"""The schema of a table or file: fields, logical types, and their Arrow counterparts."""
