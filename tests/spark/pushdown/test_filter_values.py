"""Filters with values that a request cannot hold stay with Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark import LanceTable
from lance_spark.dataset.write import write_dataset

WORDS = ["a", "\ufffd", "\U0001f600", "\uffff", None]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("s = cast(X'FF' as string)", []),
        ("s < cast(X'FF' as string)", [0, 1, 2, 3]),
        ("s >= cast(X'F0' as string)", [2]),
        ("s in (cast(X'FF' as string), 'a')", [0]),
        ("s not in (cast(X'FE' as string))", [0, 1, 2, 3]),
        ("startswith(s, cast(X'EFBF' as string))", [1, 3]),
        ("s <> cast(X'F0' as string) and s = 'a'", [0]),
    ],
)
def test_strings_that_are_not_utf_8(
    spark: Any, pushdown: Callable[..., None], tmp_path: Path, condition: str, ids: list[int]
) -> None:
    path = str(tmp_path / "t.lance")
    rows: dict[str, list[Any]] = {"id": list(range(len(WORDS))), "s": WORDS}
    write_dataset(pa.table(rows), path)
    pushdown(True, True)
    frame = spark.read.format("lance").load(path).where(condition)
    assert sorted(row.id for row in frame.collect()) == ids
    LanceTable.forPath(spark, path).delete(condition)
    left = lance.dataset(path).to_table(["id"])["id"].to_pylist()
    assert left == [number for number in rows["id"] if number not in ids]
