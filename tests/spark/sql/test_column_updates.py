"""UPDATE without a condition: the columns that it assigns are written, and no row moves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import pytest
from pyspark.errors import PySparkException

from tests.spark.sql.test_row_changes import files

NAME = "column_updates"
COLUMNS = "id BIGINT, v INT, s STRING, w STRING, p STRUCT<x: INT, y: INT>, e ARRAY<FLOAT>"
ROWS = """
SELECT id, if(id % 5 = 0, NULL, cast(id AS INT)), repeat(sha2(string(id), 512), 3), 'w',
  if(id % 7 = 0, NULL, named_struct('x', cast(id AS INT), 'y', 8)), array(id, 1)
FROM range({first}, {stop}, 1, 1)
"""


@pytest.fixture(params=["true", "false"], ids=["stable row ids", "addresses"])
def table(request: pytest.FixtureRequest, spark: Any, root: Path) -> str:
    """A table of two fragments, from which rows were deleted."""
    name = f"{NAME}.t{len(list(root.iterdir()))}"
    spark.sql(
        f"CREATE TABLE {name} ({COLUMNS}) TBLPROPERTIES "
        f"('enable_stable_row_ids' = '{request.param}', 'e.arrow.fixed-size-list.size' = '2')"
    )
    for first in (0, 50):
        spark.sql(f"INSERT INTO {name} {ROWS.format(first=first, stop=first + 50)}")
    spark.sql(f"DELETE FROM {name} WHERE id % 10 = 3")
    return name


def dataset(root: Path, table: str) -> lance.LanceDataset:
    return lance.dataset(str(root / f"{table.partition('.')[2]}.lance"))


def rows(root: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows as pylance reads them, with their ids and addresses."""
    read = dataset(root, table).to_table(with_row_id=True, with_row_address=True).to_pylist()
    return sorted(read, key=lambda row: row["id"])


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("assigned", "new"),
    [
        ("v = v * 2", {"v": lambda row: None if row["v"] is None else row["v"] * 2}),
        ("v = NULL", {"v": lambda _: None}),
        (
            "p.x = cast(id AS INT) + 1",
            {
                "p": lambda row: {"y": None, **(row["p"] or {}), "x": row["id"] + 1},
            },
        ),
        ("e = array(id, 7)", {"e": lambda row: [row["id"], 7]}),
        ("v = (SELECT 9)", {"v": lambda _: 9}),
    ],
)
def test_the_columns_alone_are_written(
    spark: Any, root: Path, table: str, assigned: str, new: dict[str, Any]
) -> None:
    before, files_before = rows(root, table), files(root, table.partition(".")[2])
    version = dataset(root, table).version
    spark.sql(f"UPDATE {table} SET {assigned}")
    updated = dataset(root, table)
    updated.validate()
    assert updated.version == version + 1
    # Ids and addresses do not change.
    expected = [{**row, **{name: value(row) for name, value in new.items()}} for row in before]
    for old, row in zip(expected, rows(root, table), strict=True):
        assert row == old
    added = files(root, table.partition(".")[2]) - files_before
    assert len(added) == len(updated.get_fragments()) == 2
    folder = root / f"{table.partition('.')[2]}.lance"
    assert all((folder / name).stat().st_size < 6_000 for name in added)


def test_rows_keep_the_version_that_created_them(spark: Any, root: Path) -> None:
    table = f"{NAME}.lineage"
    spark.sql(f"CREATE TABLE {table} ({COLUMNS}) TBLPROPERTIES ('enable_stable_row_ids' = 'true')")
    spark.sql(f"INSERT INTO {table} {ROWS.format(first=0, stop=4)}")
    spark.sql(f"INSERT INTO {table} {ROWS.format(first=4, stop=6)}")
    spark.sql(f"UPDATE {table} SET v = 5")
    versions = spark.sql(
        f"SELECT _row_created_at_version c, _row_last_updated_at_version u FROM {table} ORDER BY id"
    ).collect()
    assert [tuple(row) for row in versions] == [(2, 4)] * 4 + [(3, 4)] * 2


def test_updates_at_the_same_time_are_planned_again(spark: Any, root: Path, table: str) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: spark.sql(f"UPDATE {table} SET v = v + 1"), range(4)))
    for row in rows(root, table):
        assert row["v"] == (None if row["id"] % 5 == 0 else row["id"] + 4)


def test_deletes_at_the_same_time(spark: Any, root: Path, table: str) -> None:
    statements = [f"UPDATE {table} SET v = id + 100", f"DELETE FROM {table} WHERE id % 10 = 4"]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(spark.sql, statements))
    left = [number for number in range(100) if number % 10 not in (3, 4)]
    assert [(row["id"], row["v"]) for row in rows(root, table)] == [(n, n + 100) for n in left]


def test_indexes_do_not_have_old_values(spark: Any, root: Path, table: str) -> None:
    dataset(root, table).create_scalar_index("v", "BTREE")
    spark.sql(f"UPDATE {table} SET v = v + 1000")
    for predicate, count in (("v = 11", 0), ("v = 1011", 1), ("v < 1000", 0), ("v IS NULL", 20)):
        assert dataset(root, table).count_rows(predicate) == count
        assert spark.table(table).where(predicate).count() == count


def test_an_error_leaves_no_files(spark: Any, root: Path, table: str) -> None:
    before, files_before = rows(root, table), files(root, table.partition(".")[2])
    value = "if(id = 99, raise_error('no value for 99'), 1)"
    with pytest.raises(PySparkException, match="no value for 99"):
        spark.sql(f"UPDATE {table} SET v = {value}")
    assert rows(root, table) == before
    assert files(root, table.partition(".")[2]) == files_before


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("statement", "moves"),
    [
        # Nearly all bytes of a row would be written again: new fragments are better.
        ("UPDATE {} SET s = 'other text', w = 's', v = 1, p = NULL", True),
        ("UPDATE {} SET v = 1 WHERE 1 = 1", False),
        ("UPDATE {} SET v = 1 WHERE id >= 0", True),
    ],
)
def test_the_choice(spark: Any, root: Path, table: str, statement: str, moves: bool) -> None:
    before = {row["_rowaddr"] for row in rows(root, table)}
    spark.sql(statement.format(table))
    after = rows(root, table)
    assert all(row["v"] == 1 for row in after)
    assert len(after) == len(before)
    assert ({row["_rowaddr"] for row in after} != before) is moves


def test_blobs_are_not_assigned_in_place(spark: Any, root: Path) -> None:
    table = f"{NAME}.blobs"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, b BINARY, s STRING) "
        "TBLPROPERTIES ('b.lance.encoding' = 'blob')"
    )
    spark.sql(
        f"INSERT INTO {table} SELECT id, cast(cast(id AS STRING) AS BINARY), repeat('s', 999) "
        "FROM range(0, 3, 1, 1)"
    )
    blobs = [column.readall() for column in dataset(root, table).take_blobs("b", indices=[0, 1, 2])]
    spark.sql(f"UPDATE {table} SET s = 'short'")
    updated = dataset(root, table)
    assert [column.readall() for column in updated.take_blobs("b", indices=[0, 1, 2])] == blobs
    assert updated.to_table(["s"])["s"].to_pylist() == ["short"] * 3
    spark.sql(f"UPDATE {table} SET b = X'01'")
    updated = dataset(root, table)
    assert [column.readall() for column in updated.take_blobs("b", indices=[0, 1, 2])] == [
        b"\x01"
    ] * 3
