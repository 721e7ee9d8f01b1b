"""One Spark session for all tests that need one: two cores, two attempts per task, no web
interface. Spark interprets the plans of some folders, because most of their plans run once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cells import ALL_CELLS
from tests.support.spark.processes import CLASS_CACHE, JAVA_OPTIONS, ROOT, WORKERS, shared_home
from tests.support.spark.settings import LOCAL, PUSHDOWN, restored

#: Folders whose tests call methods and statements. Plans of the other folders, which are about
#: queries, are compiled as in sessions of users, and so are all plans in `make test-long`.
INTERPRETED = frozenset({"sql", "table"})
#: A module whose plans are compiled: Spark 4.3 cannot read variants of Parquet by interpreted ones.
COMPILED = "test_recorded_types.py"
#: Values of Spark's settings for compiled plans and for interpreted ones.
COMPILATION = {
    "spark.sql.codegen.wholeStage": ("true", "false"),
    "spark.sql.codegen.factoryMode": ("FALLBACK", "NO_CODEGEN"),
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session whose workers are this interpreter and find this checkout."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(shared_home())
    os.environ.setdefault("LANCE_SPARK_CLASS_CACHE", str(CLASS_CACHE))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(WORKERS), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    scratch = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2,2]")
        .appName("lance_spark tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
        .config("spark.driver.host", "localhost")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(autouse=True, scope="module")
def _compilation(request: pytest.FixtureRequest) -> None:
    """Choose whether Spark compiles the plans of the tests of a module, if they need a session."""
    tests = [item for item in request.session.items if item.path == request.path]
    if any("spark" in getattr(item, "fixturenames", ()) for item in tests):
        session = request.getfixturevalue("spark")
        folder = request.path.relative_to(Path(__file__).parent).parts[0]
        interpreted = folder in INTERPRETED and request.path.name != COMPILED and not ALL_CELLS
        for name, values in COMPILATION.items():
            session.conf.set(name, values[interpreted])


@pytest.fixture
def read(spark: Any, tmp_path: Path) -> Callable[..., Any]:
    """Load the table `t.lance` of the test's folder, with options."""

    def load(path: str | None = None, **options: object) -> Any:
        return spark.read.format("lance").options(**options).load(path or str(tmp_path / "t.lance"))

    return load


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., None]:
    """Write a DataFrame to the table `t.lance` of the test's folder."""

    def save(frame: Any, mode: str = "append", path: str | None = None, **options: object) -> None:
        writer = frame.write.format("lance").mode(mode).options(**options)
        writer.save(path or str(tmp_path / "t.lance"))

    return save


@pytest.fixture
def pushed(spark: Any) -> Iterator[None]:
    """Turn push-down on for a test, as it is in a session of users."""
    import lance_spark

    lance_spark.enable(spark)
    with restored(spark, PUSHDOWN):
        spark.conf.set(PUSHDOWN, "true")
        yield


@pytest.fixture(scope="module")
def pushdown(spark: Any) -> Iterator[Callable[..., None]]:
    """Turn push-down on, and off again after the module; the value switches it between queries.

    All rows are read by tasks, unless `local` says that small queries may be answered while they
    are planned.
    """
    import lance_spark

    lance_spark.enable(spark)

    def switch(on: bool, local: bool = False) -> None:
        spark.conf.set(PUSHDOWN, str(on).lower())
        spark.conf.set(LOCAL, str(local).lower())

    switch(True)
    yield switch
    switch(False)
    spark.conf.unset(LOCAL)
