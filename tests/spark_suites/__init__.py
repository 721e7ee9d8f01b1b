"""Spark's own tests with Lance in place of Parquet: see `make test-spark-suites`.

Nothing of their text is stored here: a checkout of Spark has it.
"""
