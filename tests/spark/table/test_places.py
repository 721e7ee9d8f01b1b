"""Changes by row address beside changes that move rows: no change is lost silently."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark import LanceTable, open_dataset, write_dataset
from lance_spark.errors import CommitConflictError
from lance_spark.mutations import commits
from lance_spark.mutations.columns import fill as columns
from tests.spark.table.tables import checked
from tests.support.tables.two_fragments import new_table

Change = Callable[[LanceTable, Any], object]
Other = Callable[[str], object]
Meanwhile = Callable[[Other], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return new_table(tmp_path / "t")


@pytest.fixture
def meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Let another client commit just before the first commit of a change."""

    def arrange(other_change: Other) -> None:
        for module, name in ((commits, "commit"), (columns, "commit_columns")):
            real = getattr(module, name)

            def late(*arguments: Any, real: Any = real, **named: Any) -> Any:
                monkeypatch.undo()
                other_change(str(path))
                return real(*arguments, **named)

            monkeypatch.setattr(module, name, late)

    return arrange


def values(path: Path, name: str = "v") -> dict[int, int]:
    rows = checked(path).to_table(["id", name]).to_pylist()
    return {row["id"]: row[name] for row in rows}


def source(spark: Any, *names: str) -> Any:
    """Return one row, for the row at address 2, whose id is 2: the named columns have the value 2,
    `v` has a new value.
    """
    rows = [(*(2 for _ in names), 9)]
    return spark.createDataFrame(rows, ", ".join(f"{column} bigint" for column in (*names, "v")))


def delete(table: LanceTable, _: Any) -> object:
    return table.delete("_rowaddr = 2")


def delete_by_spark(table: LanceTable, _: Any) -> object:
    return table.alias("t").delete("pmod(t.`_RowId`, 1000) = 2")


def delete_by_column(table: LanceTable, _: Any) -> object:
    from pyspark.sql import functions as F

    return table.delete(F.col("_rowaddr").isin(2, 3))


def update(table: LanceTable, _: Any) -> object:
    return table.update("_rowaddr = 2", {"v": "9"}, mode="rows")


def update_columns(table: LanceTable, _: Any) -> object:
    return table.update_columns({"v": "CASE WHEN _rowaddr = 2 THEN 9 ELSE v END"})


def merge(table: LanceTable, spark: Any) -> object:
    merge = table.merge(source(spark, "id", "at"), "target._rowaddr = source.at")
    assignments = {"id": "source.id", "v": "source.v"}
    return (
        merge.whenMatchedUpdate(set=assignments).whenNotMatchedInsert(values=assignments).execute()
    )


def merge_by_clause(table: LanceTable, spark: Any) -> object:
    merge = table.merge(source(spark, "id"), "target.id = source.id")
    return merge.whenMatchedDelete("target._rowaddr = 2").execute()


def update_from(table: LanceTable, spark: Any) -> object:
    return table.update_columns_from(source(spark, "_rowaddr"), "_rowaddr")


def update_from_ids(table: LanceTable, spark: Any) -> object:
    return table.update_columns_from(source(spark, "id", "_rowid"), ["id", "_rowid"])


def add_from(table: LanceTable, spark: Any) -> object:
    source_rows = source(spark, "_rowaddr").withColumnRenamed("v", "w")
    return table.add_columns_from(source_rows, "_rowaddr")


def add(table: LanceTable, _: Any) -> object:
    return table.add_columns({"w": "CASE WHEN _rowaddr = 2 THEN 9 END"})


CHANGES = [
    delete,
    delete_by_spark,
    delete_by_column,
    update,
    update_columns,
    merge,
    merge_by_clause,
    update_from,
    update_from_ids,
    add_from,
    add,
]
SOME_CHANGES = [delete_by_spark, merge, update_from, add_from]


def compaction(uri: str) -> None:
    open_dataset(uri).compact_files()


def moved(uri: str) -> None:
    open_dataset(uri).update({"v": 7}, [("id", "==", 2)])


def overwrite(uri: str) -> None:
    """Overwrite the table: other rows get the addresses of the old rows."""
    write_dataset(pa.table({"id": [10, 11, 12, 13], "v": [5] * 4}), uri, "overwrite")


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("change", "other_change"),
    [
        *((change, compaction) for change in CHANGES),
        *((change, other_change) for change in SOME_CHANGES for other_change in (moved, overwrite)),
    ],
)
def test_addresses_of_moved_rows_are_a_conflict(
    spark: Any, path: Path, meanwhile: Meanwhile, change: Change, other_change: Other
) -> None:
    versions: list[int] = []

    def noted(uri: str) -> None:
        other_change(uri)
        versions.append(open_dataset(uri).version)

    meanwhile(noted)
    with pytest.raises(
        CommitConflictError, match=r"moved or removed by another client.*find the"
    ) as caught:
        change(LanceTable.forPath(spark, str(path)), spark)
    assert not caught.value.retryable
    assert versions == [checked(path).version]


def conflict(uri: str) -> None:
    """Give rows new values at their addresses: the other change must be planned again."""
    open_dataset(uri).update({"v": 7}, [("id", "==", 2)], mode="columns")


@pytest.mark.sample(3)
@pytest.mark.parametrize("change", SOME_CHANGES)
def test_addresses_of_unmoved_rows_stay_valid(
    spark: Any, path: Path, meanwhile: Meanwhile, change: Change
) -> None:
    meanwhile(conflict)
    change(LanceTable.forPath(spark, str(path)), spark)
    remaining = values(path, checked(path).schema.names[-1])
    assert remaining.get(2, 9) == 9
    assert open_dataset(str(path)).version == 3


def test_stable_row_ids_find_moved_rows(spark: Any, tmp_path: Path, meanwhile: Meanwhile) -> None:
    stable = new_table(tmp_path / "stable", enable_stable_row_ids=True)
    table = LanceTable.forPath(spark, str(stable))
    for change in (update_from_ids, delete_by_spark):
        meanwhile(lambda _: (moved(str(stable)), compaction(str(stable))))
        change(table, spark)
        assert values(stable).get(2, 9) == 9


def test_other_conditions_are_evaluated_again(spark: Any, path: Path, meanwhile: Meanwhile) -> None:
    table = LanceTable.forPath(spark, str(path))
    for other_change, condition, left in (
        (compaction, "id = 2", {0: 0, 1: 0, 3: 0, 4: 0, 5: 0}),
        (overwrite, "pmod(id, 100) = 1", {10: 5, 11: 5, 12: 5, 13: 5}),
    ):
        meanwhile(other_change)
        table.delete(condition)
        assert values(path) == left


def test_positions_move_with_deletes(spark: Any, path: Path, meanwhile: Meanwhile) -> None:
    meanwhile(lambda uri: lance.dataset(uri).delete("id IN (1, 2)"))
    with pytest.raises(CommitConflictError, match=r"_rowoffset.*\(delete\)"):
        LanceTable.forPath(spark, str(path)).delete("pmod(_rowoffset, 100) = 2")
    assert set(values(path)) == {0, 3, 4, 5}
