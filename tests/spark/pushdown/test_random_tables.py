"""Random nested tables that pylance has written: Spark reads the rows that pylance reads, by
columns and by rows. `make test-long` reads a thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cells import number_of
from tests.support.spark.random_tables import check_tables

TABLES = number_of(12, 1_000)
GROUP = 12


@pytest.mark.parametrize("first", range(0, TABLES, GROUP))
def test_random_tables(
    spark: Any, pushdown: Callable[..., None], tmp_path: Path, first: int
) -> None:
    pushdown(True, False)
    assert check_tables(spark, range(first, first + GROUP), tmp_path) > GROUP // 4
