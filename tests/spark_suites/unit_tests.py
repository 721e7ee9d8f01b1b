"""Runs a module of pyspark's tests with a source: a line of JSON for the outcome of each test.

Spark reads its settings from the folder that `SPARK_CONF_DIR` names, so that the sessions that the
tests start have the source by default. The source also takes the place of the formats in
`REPLACED`, in calls with and without their names.
"""

from __future__ import annotations

import json
import logging
import sys
import unittest
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pyspark
import pyspark.sql
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, DataFrameWriter, DataFrameWriterV2, SparkSession
from pyspark.sql.streaming import DataStreamReader, DataStreamWriter

from tests.spark_suites.inputs import with_source
from tests.spark_suites.outcomes import Outcome
from tests.spark_suites.session import REPLY

#: Formats that the source replaces.
REPLACED = frozenset({"parquet", "orc", "json"})


class Outcomes(unittest.TestResult):
    """Prints the outcome of each test."""

    def __init__(self, module: str):
        super().__init__()
        self._module = module
        self._number = 0

    def _print(self, test: Any, condition: str = "", error: str = "") -> None:
        self._number += 1
        name = test.id().removeprefix(f"{self._module}.")
        outcome = Outcome(self._module, self._number, name, condition=condition, error=error)
        print(REPLY + json.dumps(outcome.values()), flush=True)

    def addSuccess(self, test: Any) -> None:
        self._print(test)

    def addSkip(self, test: Any, reason: str) -> None:
        self._print(test, "skipped", reason)

    def addFailure(self, test: Any, err: Any) -> None:
        self._print(test, "AssertionError", _text(test, err[1]))

    def addError(self, test: Any, err: Any) -> None:
        error = err[1]
        condition = error.getCondition() if isinstance(error, PySparkException) else None
        self._print(test, condition or type(error).__name__, _text(test, error))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._print(subtest, type(err[1]).__name__, _text(test, err[1]))


def _text(test: Any, error: BaseException) -> str:
    """Return the message of an error and the line of the test."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if "/tests/" in path:
            place = f" ({Path(path).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{str(error).strip()[:2000]}{place}"


def replace_formats(source: str) -> None:
    """Let the source take the place of the formats in `REPLACED`."""
    for kind in (DataFrameReader, DataFrameWriter, DataStreamReader, DataStreamWriter):
        _replace_in_calls(kind, "format", source)
        for name in REPLACED:
            if hasattr(kind, name):
                _replace_method(kind, name, source)
    _replace_in_calls(DataFrameWriterV2, "using", source)
    sql = SparkSession.sql

    def replaced_sql(self: Any, statement: str, *arguments: Any, **keywords: Any) -> Any:
        return sql(self, with_source(statement, source), *arguments, **keywords)

    SparkSession.sql = replaced_sql


def _replace_in_calls(kind: type, method: str, source: str) -> None:
    original = getattr(kind, method)

    def replaced(self: Any, name: str) -> Any:
        return original(self, source if name in REPLACED else name)

    setattr(kind, method, replaced)


def _replace_method(kind: type, name: str, source: str) -> None:
    """Replace `reader.json(path, ...)` and `writer.json(path, mode, ...)`."""
    reads = kind in (DataFrameReader, DataStreamReader)
    original = getattr(kind, name)

    def call(self: Any, path: Any, *arguments: Any, **keywords: Any) -> Any:
        if not isinstance(path, str | list):
            # The rows themselves, as text.
            return original(self, path, *arguments, **keywords)
        if not reads:
            mode = keywords.pop("mode", arguments[0] if arguments else None)
            partition_by = keywords.pop("partitionBy", None)
            return self.format(source).save(path, mode=mode, partitionBy=partition_by, **keywords)
        if keywords.get("schema") is None and arguments:
            keywords["schema"] = arguments[0]
        schema = keywords.pop("schema", None)
        given = {key: value for key, value in keywords.items() if value is not None}
        return self.format(source).options(**given).load(path, schema=schema)

    setattr(kind, name, call)


def _load_testing(folder: Path) -> None:
    """Load the package `pyspark.testing` of the tests' own release from a folder."""
    spec = spec_from_file_location(
        "pyspark.testing", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["pyspark.testing"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


def main(source: str, python: str) -> None:
    """Run the modules that the standard input names, of the folder `python` of Spark's source."""
    logging.disable()
    root = Path(python) / "pyspark"
    # The tests are packages in packages of the installed pyspark, which lacks them.
    pyspark.__path__.append(str(root))
    pyspark.sql.__path__.append(str(root / "sql"))
    _load_testing(root / "testing")
    replace_formats(source)
    for line in sys.stdin:
        suite = unittest.defaultTestLoader.loadTestsFromName(line.strip())
        suite.run(Outcomes(line.strip()))
        print(REPLY + "null", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
