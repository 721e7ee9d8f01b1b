"""The large table that tests of `LanceTable` copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.table.tables import copied, write_large


@pytest.fixture(scope="session")
def large_source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """The large table of 50 fragments, and its rows."""
    path = tmp_path_factory.mktemp("large") / "t.lance"
    return path, write_large(path)


@pytest.fixture
def large(
    large_source: tuple[Path, pa.Table], tmp_path: Path
) -> Callable[[str], tuple[Path, pa.Table]]:
    """Make a copy of the large table under a name; return it and its rows."""

    def copy(name: str = "t.lance") -> tuple[Path, pa.Table]:
        return copied(large_source[0], tmp_path / name), large_source[1]

    return copy
