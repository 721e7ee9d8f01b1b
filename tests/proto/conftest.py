"""Marker of the tests that install packages into temporary folders."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "slow_env: downloads other versions of a dependency with pip, some seconds each"
    )
