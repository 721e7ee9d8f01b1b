"""Load tests with many processes on one table, and `make soak`, which runs all long tests."""
