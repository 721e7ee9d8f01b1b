"""Children of structs that `LanceTable` sets: the oracle is Spark, with structs that the test
builds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark import LanceTable
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import InvalidInputError, SchemaMismatchError
from tests.spark.table.tables import checked

STRUCT = pa.struct(
    [
        pa.field("a", pa.int64()),
        pa.field("in.ner", pa.struct([pa.field("x`y", pa.int32()), pa.field("t", pa.string())])),
        pa.field("half", pa.float16()),
    ]
)
ROWS: list[dict[str, Any] | None] = [
    {"a": 1, "in.ner": {"x`y": 1, "t": "one"}, "half": np.float16(1.5)},
    None,
    {"a": None, "in.ner": None, "half": None},
    {"a": 4, "in.ner": {"x`y": None, "t": None}, "half": np.float16(4)},
]
NOTHING = {"a": None, "in.ner": None, "half": None}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = pa.table({"id": range(4), "S": pa.array(ROWS, STRUCT), "other": range(4)})
    write_dataset(table, str(tmp_path / "t"), max_rows_per_file=2)
    return tmp_path / "t"


def read(path: Path) -> list[Any]:
    table = checked(path).to_table().sort_by("id")
    assert table["other"].to_pylist() == list(range(4))
    return table["S"].to_pylist()


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_update(spark: Any, path: Path, mode: Any) -> None:
    from pyspark.sql import functions as F

    table = LanceTable.forPath(spark, str(path)).alias("u")
    # A struct that was null gets a child, and is not null any longer.
    result = table.update("id <= 1", {"s.A": "u.S.a + 10", "u.s.`in.ner`.t": F.lit(7)}, mode=mode)
    assert result.num_updated_rows == 2
    expected: list[Any] = list(ROWS)
    expected[0] = {"a": 11, "in.ner": {"x`y": 1, "t": "7"}, "half": 1.5}
    expected[1] = {"a": None, "in.ner": {"x`y": None, "t": "7"}, "half": None}
    assert read(path) == expected

    table.update("S.a is null", {"S.`in.ner`.`x``y`": "id"}, mode=mode)
    for n in (1, 2):
        inner = (expected[n]["in.ner"] or {"t": None})["t"]
        expected[n] = {**expected[n], "in.ner": {"x`y": n, "t": inner}}
    assert read(path) == expected


def test_invalid_paths_are_refused(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    for values, error in [
        ({"S.none": "1"}, SchemaMismatchError),
        ({"other.a": "1"}, SchemaMismatchError),
        ({"S.a": "1", "s.A": "2"}, InvalidInputError),
        ({"S.a": "1", "s": "null"}, InvalidInputError),
        ({"S.a": 1}, InvalidInputError),
    ]:
        with pytest.raises(error):
            table.update(None, values)
    assert lance.dataset(path).version == 1


def test_merge(spark: Any, path: Path) -> None:
    source = spark.createDataFrame(
        [(0, 50, "b"), (1, 51, "c"), (9, 59, "d")], "id long, a int, t string"
    )
    # The source has a struct with the same name.
    source = source.selectExpr("id", "named_struct('a', a, 't', t) S", "id other")
    merge = LanceTable.forPath(spark, str(path)).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate("s.id = 0", {"t.S.a": "s.S.a", "S.`in.ner`.t": "s.S.t"})
    merge = merge.whenMatchedUpdate(None, {"S.a": "s.S.a"})
    merge = merge.whenNotMatchedBySourceUpdate("id = 3", {"S.half": "2.5"})
    result = merge.execute()
    assert result.num_updated_rows == 3
    expected: list[Any] = list(ROWS)
    expected[0] = {"a": 50, "in.ner": {"x`y": 1, "t": "b"}, "half": 1.5}
    expected[1] = {**NOTHING, "a": 51}
    expected[3] = {**(ROWS[3] or {}), "half": 2.5}
    assert read(path) == expected
    insert = merge.whenNotMatchedInsert(None, {"id": "s.id", "S.a": "1"})
    with pytest.raises(SchemaMismatchError, match="new rows"):
        insert.execute()
