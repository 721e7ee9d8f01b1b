"""Settings of all tests."""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.cells import ALL_CELLS, sample
from tests.support.memory_folder import memory_folder

# Timing is unreliable on machines that run tests in parallel. A run of CI tries the same examples
# each time, so that it fails only because of a change; `make test-long` tries others each time.
settings.register_profile("lance_spark", deadline=None, derandomize=not ALL_CELLS)
settings.load_profile("lance_spark")

pytest.register_assert_rewrite(
    "tests.support.stores.store_suite", "tests.support.stores.table_suite"
)

TESTS = Path(__file__).parent
#: Folders of tests that need Spark, or try thousands of tables, schedules or inputs.
SLOW_FOLDERS = frozenset({"crash", "faults", "hostile", "interop", "soak", "spark"})
#: A part of the names of modules whose tests damage thousands of inputs.
SLOW_MODULES = "hostile"
#: Names in a module whose tests start a process.
PROCESSES = frozenset({"Kills", "subprocess", "multiprocessing"})
#: The folder, the module and the fixture of tests that start Spark.
SPARK = frozenset({"spark", "test_examples.py"})
#: Folders of `tests/spark` whose tests share the second session of Spark.
SECOND_SESSION = frozenset({"read", "requests", "table", "write"})
#: Fixtures of tests that start a server in place of a store, and names in modules that start one.
STORES = frozenset({"aws", "azurite", "gcs", "keyed_s3", "serving", "spoiling"})
#: The selection of `make test-fast`, which does not import tests that it leaves out.
FAST = "not slow"

#: The root of pytest's temporary folders.
TEMPORARY_ROOT = "PYTEST_DEBUG_TEMPROOT"
#: pylance builds an NGRAM index in 128 partitions and merges their files, which takes more than a
#: second for any number of rows. The merged index has the same bytes.
os.environ.setdefault("LANCE_NGRAM_NUM_PARTITIONS", "2")
#: Threads of numpy's matrix products wait for each other in loops. On cores that other tests use,
#: they take several times the processor time of one thread. numpy reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary files in memory where there is room, unless a folder is given."""
    folder = memory_folder()
    if folder and config.option.basetemp is None and TEMPORARY_ROOT not in os.environ:
        os.environ[TEMPORARY_ROOT] = str(folder)
    # Each collection of garbage would look at all modules and tests that are loaded so far.
    gc.disable()


def pytest_collection(session: pytest.Session) -> None:
    """Import a part of the modules before the others, in each worker of xdist.

    In a new checkout, the worker that imports a module first compiles it for all workers.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.option.markexpr == FAST:
        return
    modules = sorted(TESTS.rglob("test_*.py"))
    for path in modules[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        # pytest imports it again, and reports the error or the reason why it is skipped.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Leave modules and tests out of later collections of garbage: they live until the end."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave folders of slow tests out of a run of fast tests, which import other packages."""
    slow = collection_path.parent == TESTS and collection_path.name in SLOW_FOLDERS
    return True if slow and config.option.markexpr == FAST else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need Spark, a server, another process or many inputs.

    Each worker of xdist gets an equal part of the tests, and takes over some of the last tests of
    another worker when it is done. The first worker begins with tests that share a session of
    Spark. The second worker begins with the tests that start Spark in a process of their own, which
    take longest, and goes on with the other tests that share a session. So two workers start a
    session, and all workers have about as much to do.
    """
    leave_out(config, items)
    for item in items:
        for name in markers(item):
            item.add_marker(name)
    share = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}
    session, second_session, alone, others = [], [], [], []
    for item in items:
        if item.get_closest_marker("spark") is None:
            others.append(item)
        elif item.path not in share and names_in_module(item) & PROCESSES:
            alone.append(item)
        elif SECOND_SESSION & set(item.path.relative_to(TESTS).parts):
            second_session.append(item)
        else:
            session.append(item)
    order = session + others
    second = len(items) // getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = order[:second] + alone + second_session + order[second:]


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave a part of the parameters of tests with the marker `sample` out, unless a test is named
    on the command line or all cells are tried.
    """
    if ALL_CELLS or any("::" in argument for argument in config.args):
        return
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") and hasattr(item, "callspec"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out: list[pytest.Item] = []
    for name, cases in tests.items():
        part = cases[0].get_closest_marker("sample").args[0]
        kept = set(sample([case.callspec.indices for case in cases], part, name))
        left_out += [case for place, case in enumerate(cases) if place not in kept]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def names_in_module(item: pytest.Item) -> set[str]:
    """Return the names in the module of a test."""
    module = item.getparent(pytest.Module)
    return set(vars(module.obj)) if module else set()


def markers(item: pytest.Item) -> set[str]:
    """Return the names of the markers of a test."""
    folder = item.path.relative_to(TESTS).parts[0]
    names = names_in_module(item)
    fixtures = set(getattr(item, "fixturenames", ()))
    marker_names = set()
    if folder in SPARK or fixtures & SPARK:
        marker_names.add("spark")
    if (fixtures | names) & STORES:
        marker_names.add("stores")
    slow = folder in SLOW_FOLDERS or SLOW_MODULES in item.path.stem or names & PROCESSES
    if marker_names or slow:
        marker_names.add("slow")
    return marker_names


def pytest_runtest_setup() -> None:
    """Drop what earlier tests have read: a test may damage or count the same files."""
    kept = sys.modules.get("lance_spark.storage.kept_ranges")
    if kept is not None:
        kept.KEPT.clear()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the summary of `tests.interop.predicates`, of all processes together."""
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
        for predicates in noted:
            total.add(Report.from_noted(predicates))
        terminalreporter.section("predicates")
        terminalreporter.write_line(str(total))
