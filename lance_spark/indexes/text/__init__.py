"""Full-text search: tokenizers, the files of INVERTED indexes, queries and their scores."""
