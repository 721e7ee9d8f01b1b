"""Vector search: the vectors of a column that are nearest to query vectors."""
