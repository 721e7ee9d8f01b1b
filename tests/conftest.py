"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# Machines that run tests in parallel have no timing to rely on.
settings.register_profile("lance_spark", deadline=None)
settings.load_profile("lance_spark")
