"""Settings of all tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.memory_folder import memory_folder

# Machines that run tests in parallel have no timing to rely on.
settings.register_profile("lance_spark", deadline=None)
settings.load_profile("lance_spark")

#: Folders of tests that need Spark, or try thousands of tables, schedules or inputs.
SLOW_FOLDERS = frozenset({"crash", "faults", "hostile", "interop", "soak", "spark"})
#: Fixtures and names of modules by which tests start Spark, a server or another process.
SLOW_FIXTURES = frozenset({"spark", "aws", "azurite", "gcs"})
SLOW_NAMES = frozenset({"subprocess", "multiprocessing", "serving", "keyed_s3"})

#: The root of pytest's temporary folders.
TEMPORARY_ROOT = "PYTEST_DEBUG_TEMPROOT"


def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary files in memory where there is room, unless a folder is given."""
    folder = memory_folder()
    if folder and config.option.basetemp is None and TEMPORARY_ROOT not in os.environ:
        os.environ[TEMPORARY_ROOT] = str(folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make test-fast` leaves out."""
    for item in items:
        if is_slow(item):
            item.add_marker(pytest.mark.slow)


def is_slow(item: pytest.Item) -> bool:
    """Tell whether a test needs Spark, a server, another process or many inputs."""
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    module = item.getparent(pytest.Module)
    names = set(vars(module.obj)) if module else set()
    fixtures = set(getattr(item, "fixturenames", ()))
    return bool(folder in SLOW_FOLDERS or fixtures & SLOW_FIXTURES or names & SLOW_NAMES)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what came of the predicates of `tests.interop.predicates`, of all processes together."""
    noted = [
        json.loads(value)
        for outcome in ("passed", "failed", "xfailed", "xpassed")
        for report in terminalreporter.stats.get(outcome, ())
        for name, value in report.user_properties
        if name == "predicates" and report.when == "call"
    ]
    if noted:
        from tests.interop.predicates.harness import Report

        total = Report()
        for one in noted:
            total.add(Report.from_noted(one))
        terminalreporter.section("predicates")
        terminalreporter.write_line(str(total))
