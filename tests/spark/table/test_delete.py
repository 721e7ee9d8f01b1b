"""`LanceTable.delete` deletes the rows that meet a condition of Spark, and no other row."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_spark
from lance_spark import LanceTable
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.mutations.rows import delete as delete_rows
from tests.spark.table.tables import PART, checked, delete_meanwhile, left_over

Large = Callable[..., tuple[Path, pa.Table]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows = pa.table({"id": range(100), "x": [None if n % 7 == 0 else n % 5 for n in range(100)]})
    write_dataset(rows, str(tmp_path / "t"), max_rows_per_file=25)
    return tmp_path / "t"


def ids(path: Path) -> list[int]:
    numbers: list[int] = checked(path).to_table(["id"])["id"].to_pylist()
    return numbers


def test_conditions_of_all_kinds(spark: Any, path: Path) -> None:
    from pyspark.sql import functions as F

    table = LanceTable.forPath(spark, str(path))
    remaining = list(range(100))
    x = {n: None if n % 7 == 0 else n % 5 for n in remaining}

    result = table.delete("x = 3")
    remaining = [n for n in remaining if x[n] != 3]
    assert (result.num_deleted_rows, ids(path)) == (100 - len(remaining), remaining)
    assert result.version == 2

    # Only Spark knows `pmod`. A null condition is not true.
    result = table.delete("pmod(x, 3) = 1")
    gone = [n for n in remaining if x[n] is not None and x[n] % 3 == 1]
    remaining = [n for n in remaining if n not in gone]
    assert (result.num_deleted_rows, ids(path)) == (len(gone), remaining)

    result = table.delete(F.col("id").isin(5, 10) | F.col("x").isNull())
    gone = [n for n in remaining if n in (5, 10) or x[n] is None]
    remaining = [n for n in remaining if n not in gone]
    assert (result.num_deleted_rows, ids(path)) == (len(gone), remaining)

    spark.range(50, 90, 7).createOrReplaceTempView("chosen_ids")
    result = table.alias("t").delete("t.id in (select id from chosen_ids)")
    gone = [n for n in remaining if n in range(50, 90, 7)]
    remaining = [n for n in remaining if n not in gone]
    assert gone
    assert (result.num_deleted_rows, ids(path)) == (len(gone), remaining)

    before = list(remaining)
    result = table.delete("rand() < 0.5", commit_message="some", transaction_properties={"a": "b"})
    remaining = ids(path)
    assert set(remaining) < set(before)
    assert result.num_deleted_rows == len(before) - len(remaining)
    properties = lance.dataset(path).read_transaction(result.version).transaction_properties
    assert properties["a"] == "b"
    assert "some" in properties.values()

    assert table.delete("id < 0").num_deleted_rows == 0
    result = table.delete()
    assert result.num_deleted_rows == len(remaining)
    assert ids(path) == []
    assert lance.dataset(path).get_fragments() == []


def test_wrong_conditions_change_nothing(spark: Any, path: Path) -> None:
    from pyspark.sql import functions as F

    table = LanceTable.forPath(spark, str(path))
    for condition, message in [
        ("no_such_column = 3", "no_such_column"),
        (F.col("id") + 1, "BOOLEAN"),
        ("id +", "end of input"),
        (7, "SQL"),
        (functools.reduce(operator.or_, [F.col("id") == n for n in range(5_000)]), "too deep"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            table.delete(condition)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        table.delete("1 / (id - 60) > pmod(1, 2)")
    with pytest.raises(InvalidInputError, match="version 1"):
        LanceTable.forPath(spark, str(path), version=1).delete("id = 3")
    assert lance.dataset(path).version == 1
    assert left_over(path) == set()


@pytest.mark.parametrize("with_rule", [False, True])
def test_both_ways_on_a_large_table(
    spark: Any, large: Large, with_rule: bool, request: pytest.FixtureRequest
) -> None:
    path, rows = large()
    if with_rule:
        request.getfixturevalue("pushdown")(True)
    table = LanceTable.forPath(spark, str(path))
    files = {file.name for file in (path / "data").iterdir()}
    # Delete a whole fragment, and some rows of all other fragments.
    condition = f"g = 17 OR id BETWEEN {PART} AND {2 * PART - 1}"
    result = table.delete(condition if with_rule else f"({condition}) AND pmod(id, 2) >= 0")
    id_, g = rows["id"], rows["g"]
    gone = pc.or_kleene(
        pc.equal(g, 17), pc.and_(pc.greater_equal(id_, PART), pc.less(id_, 2 * PART))
    )
    gone = pc.fill_null(gone, False)
    dataset = checked(path)
    assert dataset.to_table() == rows.filter(pc.invert(gone))
    assert result.num_deleted_rows == pc.sum(gone).as_py()
    assert len(dataset.get_fragments()) == 49
    assert {file.name for file in (path / "data").iterdir()} == files
    assert table.toDF(["id"], filter="g < 20").count() == (
        np.count_nonzero(rows.filter(pc.invert(gone))["g"].fill_null(99).to_numpy() < 20)
    )


def test_concurrent_deletes(spark: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = LanceTable.forPath(spark, str(path))
    changes: list[str] = ["id = 1", "id = 2"]
    delete_meanwhile(monkeypatch, delete_rows, path, changes)
    # Another client deletes another row of the fragment: this is no conflict. It deletes the same
    # row: the replan skips this row.
    assert table.delete("id = 7 AND pmod(id, 7) = 0").num_deleted_rows == 1
    assert table.delete("id < 5").num_deleted_rows == 3
    assert ids(path) == [n for n in range(100) if n not in (0, 1, 2, 3, 4, 7)]
    changes.append("id = 30")
    with pytest.raises(CommitConflictError):
        table.delete("id = 30", conflict_retries=0)
    assert left_over(path) == set()


def test_existing_tables(spark: Any, path: Path) -> None:
    assert lance_spark.LanceTable is LanceTable
    assert LanceTable.isLanceTable(spark, str(path))
    assert not LanceTable.isLanceTable(spark, str(path / "data"))
    frame = LanceTable.forPath(spark, str(path)).toDF(
        ["id"], with_row_address=True, filter="id < 3"
    )
    assert frame.columns == ["id", "_rowaddr"]
    assert sorted(tuple(row) for row in frame.collect()) == [(n, n) for n in range(3)]


def test_whole_fragments_and_some(spark: Any, large: Large) -> None:
    path, _ = large()

    def seen(**options: object) -> list[tuple[int, int, bool]]:
        frame = (
            spark.read.format("lance").schema("_rowaddr long").options(**options).load(str(path))
        )

        def look(batches: Any) -> Any:
            addresses = np.concatenate([batch.column(0).to_numpy() for batch in batches])
            yield pa.record_batch(
                {
                    "first": [int(addresses[0] >> 32)],
                    "rows": [len(addresses)],
                    "sorted": [bool((np.diff(addresses) > 0).all())],
                }
            )

        tasks = frame.mapInArrow(look, "first long, rows long, sorted boolean").collect()
        return sorted(tuple(row) for row in tasks)

    chosen = seen(fragment_ids="3,7-8", whole_fragments=True, target_rows_per_partition=1000)
    assert chosen == [(3, PART, True), (7, PART, True), (8, PART, True)]
    assert sum(rows for _, rows, _ in seen(fragment_ids="49")) == PART
    frame = spark.read.format("lance").option("fragment_ids", "3").load(str(path))
    assert frame.count() == PART
    with pytest.raises(Exception, match="no fragment 50"):
        seen(fragment_ids="50")


def test_columns_whose_names_are_part_of_a_word_are_not_read(spark: Any, tmp_path: Path) -> None:
    """Spark cannot read these times: they are not whole microseconds."""
    times = pa.array([n * 1_000 + 1 for n in range(10)], pa.timestamp("ns"))
    rows = pa.table({"hits": range(10), "ts": times})
    write_dataset(rows, str(tmp_path / "t"))
    table = LanceTable.forPath(spark, str(tmp_path / "t"))
    assert table.delete("pmod(hits, 3) = 1").num_deleted_rows == 3
    assert table.update("pmod(hits, 3) = 2", {"hits": "-hits"}).num_updated_rows == 3
    remaining = checked(tmp_path / "t").to_table().sort_by("ts")
    assert remaining["hits"].to_pylist() == [0, -2, 3, -5, 6, -8, 9]
    assert remaining["ts"].combine_chunks() == times.take([0, 2, 3, 5, 6, 8, 9])
