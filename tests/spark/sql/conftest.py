"""The catalog of a module: a new folder, under the name that the module gives in `NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.sql.catalogs import TestCatalog


@pytest.fixture(scope="module")
def catalog(
    request: pytest.FixtureRequest, spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> TestCatalog:
    """The catalog, which has no tables at the beginning of the module."""
    name = request.module.NAME
    return TestCatalog.of(spark, name, tmp_path_factory.mktemp(name))


@pytest.fixture(scope="module")
def root(catalog: TestCatalog) -> Path:
    """The folder of the catalog."""
    return catalog.root
