"""Tools that people run on Spark, each in an environment of its own: see `make test-tools`."""
