"""A sorted table, for all modules: it is written once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.spark.sorted_tables import write_sorted


@pytest.fixture(scope="session")
def sorted_table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table, which no test changes."""
    path = tmp_path_factory.mktemp("sorted") / "t.lance"
    write_sorted(spark, path)
    return path


@pytest.fixture
def sorted_copy(sorted_table: Path, tmp_path: Path) -> Path:
    """A copy of the table, to be changed."""
    return Path(shutil.copytree(sorted_table, tmp_path / "t.lance"))
