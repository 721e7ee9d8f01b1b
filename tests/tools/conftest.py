"""Tests of tools run where `python -m tests.tools` has installed the tool."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.spark.processes import CLASS_CACHE, ROOT, SHORT_LIVED
from tests.tools.__main__ import ENVIRONMENTS


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the tests of a tool out of runs that do not name their module: they need the tool."""
    if collection_path.stem.removeprefix("test_") not in ENVIRONMENTS:
        return None
    named = {Path(argument.partition("::")[0]).name for argument in config.args}
    return None if collection_path.name in named else True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tables of a module: `lake` of the catalog by name, and `warehouse`."""
    return tmp_path_factory.mktemp("tool")


@pytest.fixture(scope="module")
def spark(folder: Path) -> Iterator[Any]:
    """A session as users start it, with the catalog `lance` and Lance tables of its own catalog."""
    from pyspark.sql import SparkSession

    import lance_spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ.setdefault("LANCE_SPARK_CLASS_CACHE", str(CLASS_CACHE))
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.driver.host", "localhost")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    lance_spark.enable(session, root=str(folder / "lake"))
    yield session
    session.stop()
