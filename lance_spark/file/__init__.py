"""The .lance container: footer, column metadata, pages, schema."""
