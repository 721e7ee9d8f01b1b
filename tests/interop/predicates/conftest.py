"""The session, and the tables on which all predicates are tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lance_spark
from tests.interop.predicates.harness import Harness
from tests.spark.conftest import spark

__all__ = ["harness", "spark"]


@pytest.fixture(scope="session")
def harness(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A harness with tables of all file versions that can be written."""
    folder: Path = tmp_path_factory.mktemp("predicates")
    lance_spark.enable(spark)
    yield Harness(spark, folder)
    spark.conf.set("spark.lance.pushdown.enabled", "false")
    spark.conf.unset("spark.lance.pushdown.local")
