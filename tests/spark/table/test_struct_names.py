"""Methods of `LanceTable` match children of structs by name, as SQL statements and writes do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark import LanceTable
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import SchemaMismatchError
from tests.support.spark.settings import restored

PAIR = pa.struct([("a", pa.string()), ("b", pa.int64())])
OLD = {"a": "old", "b": 1}
NEW = {"a": "7", "b": 8}
#: `NEW` with its children in another order, and both of them of another type.
GIVEN = "named_struct('b', '8', 'a', 7)"
SOURCE = (
    f"SELECT 1L AS id, {GIVEN} AS s, named_struct('s', {GIVEN}) AS deep, array({GIVEN}) AS items"
)
CASE = "spark.sql.caseSensitive"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows = pa.table(
        {
            "id": pa.array([1], pa.int64()),
            "s": pa.array([OLD], PAIR),
            "deep": pa.array([{"s": OLD}], pa.struct([("s", PAIR)])),
            "items": pa.array([[OLD]], pa.list_(PAIR)),
        }
    )
    write_dataset(rows, str(tmp_path / "t"))
    return tmp_path / "t"


def updated(table: LanceTable, source: Any) -> None:
    table.update(None, {"s": GIVEN, "deep.s": GIVEN, "items": f"array({GIVEN})"})


def updated_columns(table: LanceTable, source: Any) -> None:
    table.update_columns({"s": GIVEN, "deep.s": GIVEN, "items": f"array({GIVEN})"})


def updated_from(table: LanceTable, source: Any) -> None:
    table.update_columns_from(source, ["id"])


def merged(table: LanceTable, source: Any) -> None:
    values = {"s": GIVEN, "deep.s": "source.s", "items": "source.items"}
    table.merge(source, "target.id = source.id").whenMatchedUpdate(None, values).execute()


def replaced(table: LanceTable, source: Any) -> None:
    table.replace_where(source, "id = 1 AND s.a IN ('7', 'old') AND deep.s.b < 9")


@pytest.mark.parametrize("change", [updated, updated_columns, updated_from, merged, replaced])
def test_children_in_another_order(
    spark: Any, path: Path, change: Callable[[LanceTable, Any], None]
) -> None:
    source = spark.sql(SOURCE)
    if change is replaced:
        # Writes do not cast strings to numbers.
        source = spark.sql(SOURCE.replace("'8'", "8L").replace("7", "'7'"))
    change(LanceTable.forPath(spark, str(path)), source)
    (row,) = lance.dataset(path).to_table().to_pylist()
    assert row == {"id": 1, "s": NEW, "deep": {"s": NEW}, "items": [NEW]}


def test_other_names_keep_their_places(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    table.update(None, {"s": "named_struct('x', 7, 'y', 8)"})
    assert lance.dataset(path).to_table()["s"].to_pylist() == [NEW]
    with pytest.raises(SchemaMismatchError, match="column s: the source has children b, c"):
        table.update(None, {"s": "named_struct('b', 7, 'c', 8)"})
    with pytest.raises(SchemaMismatchError, match=r"column deep\.s: the source has"):
        table.update(None, {"deep.s": "named_struct('b', 7, 'c', 8)"})
    assert lance.dataset(path).to_table()["s"].to_pylist() == [NEW]


def test_names_that_differ_only_in_case(spark: Any, tmp_path: Path) -> None:
    both = pa.struct([("a", pa.string()), ("A", pa.string())])
    rows = pa.table({"id": pa.array([1], pa.int64()), "s": pa.array([None], both)})
    write_dataset(rows, str(tmp_path / "t"))
    table = LanceTable.forPath(spark, str(tmp_path / "t"))
    with restored(spark, CASE):
        spark.conf.set(CASE, "true")
        source = spark.sql("SELECT 1L AS id, named_struct('A', 'upper', 'a', 'lower') AS s")
        table.merge(source, "target.id = source.id").whenMatchedUpdateAll().execute()
    assert lance.dataset(tmp_path / "t").to_table()["s"].to_pylist() == [
        {"a": "lower", "A": "upper"}
    ]
