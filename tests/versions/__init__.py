"""Runs of the tests with other versions of Python and of packages: see `make test-versions`."""
