"""Filters with values that a request cannot hold stay with Spark."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark import LanceTable
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import UnsupportedError
from lance_spark.file.schema.schema import Schema
from lance_spark.spark.pushdown.filter_trees import to_predicate

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


def test_packed_values() -> None:
    """Thousands of values are bytes: integers of 64 bits, or lengths and the bytes of strings."""

    def tree(column: str, data: bytes, name: str, count: int) -> dict[str, Any]:
        text = base64.b64encode(data).decode()
        packed = {"packed": text, "type": name, "count": count}
        return {"op": "in", "args": [{"col": [column]}, packed]}

    rows = pa.record_batch(
        {
            "i": pa.array([5, -7, None, 9], pa.int32()),
            "u": pa.array([5, 7, None, 9], pa.uint32()),
            "s": ["", "é", None, "x"],
        }
    )
    schema = Schema.from_arrow(rows.schema)
    integers = np.array([5, -7, 5], "<i8").tobytes()
    strings = np.array([2, 0], "<i4").tobytes() + "é".encode()
    for column, data, name, count, expected in [
        ("i", integers, "int", 3, [True, True, None, False]),
        ("u", integers, "bigint", 3, [True, False, None, False]),
        ("s", strings, "string", 2, [True, True, None, False]),
        ("i", b"", "int", 0, [False, False, None, False]),
        ("s", b"", "string", 0, [False, False, None, False]),
    ]:
        predicate = to_predicate(tree(column, data, name, count), schema)
        assert predicate.evaluate(rows).to_pylist() == expected, column
    for column, data, name, count in [
        ("i", integers, "int", 4),
        ("i", integers, "date", 3),
        ("i", np.array([1 << 40], "<i8").tobytes(), "int", 1),
        ("s", strings, "string", 1),
        ("s", np.array([2], "<i4").tobytes() + b"\xff\xff", "string", 1),
    ]:
        with pytest.raises(UnsupportedError, match="a list of values is malformed"):
            to_predicate(tree(column, data, name, count), schema)
