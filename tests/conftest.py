"""Settings of all tests."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings

# Machines that run tests in parallel have no timing to rely on.
settings.register_profile("lance_spark", deadline=None)
settings.load_profile("lance_spark")


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
