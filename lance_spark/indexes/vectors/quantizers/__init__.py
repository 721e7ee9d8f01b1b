"""How the vectors of an index are stored, and how distances of stored vectors are computed."""
