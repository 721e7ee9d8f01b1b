"""Load tests with many processes on one table, and `python -m tests.soak`, which runs all long tests."""
