"""A standalone cluster of Spark whose workers see none of the driver's files: `make test-cluster`."""
