"""A folder on the path of Spark's Python processes for this format, and of no others."""
