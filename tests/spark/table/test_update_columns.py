"""`LanceTable.update` in the mode `columns`, and `update_columns`."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from lance_spark import LanceTable
from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import CommitConflictError, InvalidInputError, UnsupportedError
from lance_spark.spark.table.dataframes import frame
from lance_spark.spark.table.jobs import columns as rewrite_columns
from tests.spark.table.tables import checked, copied

Large = Callable[..., tuple[Path, pa.Table]]
LINEAGE = ("_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version")
COUNT = 400


def rows_of(count: int = COUNT) -> pa.Table:
    ids = np.arange(count)
    texts = pa.array([None if n % 7 == 0 else f"text {n}" for n in range(count)])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(4.0 * count, dtype="f4")), 4)
    return pa.table(
        {
            "id": ids,
            "g": pa.array((ids % 10).astype(np.int32), mask=ids % 11 == 0),
            "text": texts,
            "inner": pa.array([{"a": int(n), "b": f"b{n}"} for n in ids]),
            "vector": vectors,
        }
    )


def write(path: Path, *, stable: bool = True, version: str = "2.2") -> Path:
    """Write five fragments: one with updated columns, and a last fragment with only two live
    rows.
    """
    lance.write_dataset(
        rows_of(),
        path,
        max_rows_per_file=80,
        enable_stable_row_ids=stable,
        data_storage_version=version,
    )
    open_dataset(str(path)).update({"g": 99}, [("id", "<", 3)], mode="columns")
    lance.dataset(path).delete("id % 13 = 5 OR (id > 330 AND id < 399)")
    return path


def content(path: Path) -> list[dict[str, Any]]:
    dataset = checked(path)
    stable = dataset.has_stable_row_ids
    names = ["id", "g", "text", "inner", "vector", *(LINEAGE if stable else LINEAGE[:2])]
    return dataset.to_table(columns=names).sort_by("id").to_pylist()


def mode_of(path: Path) -> str:
    """Return the update mode of the newest version, as pylance reads its transaction."""
    dataset = lance.dataset(path)
    return str(dataset.read_transaction(dataset.version).operation.update_mode)


CONDITIONS = [
    ("g = 3", "g = 3"),
    ("text IS NULL OR id BETWEEN 85 AND 240", "text IS NULL OR (id >= 85 AND id <= 240)"),
    ("pmod(id, 3) = 1 AND g IS NOT NULL", "id % 3 = 1 AND g IS NOT NULL"),
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
def test_both_modes_agree_with_pylance(
    spark: Any, tmp_path: Path, version: str, stable: bool
) -> None:
    source = write(tmp_path / "t", stable=stable, version=version)
    before = {row["id"]: row for row in content(source)}
    ours, theirs = random.Random(f"{version} {stable}").choice(CONDITIONS)
    values = {"text": "concat('new ', id)", "g": "g * 2"}
    pylance_copy = copied(source, tmp_path / "pylance")
    lance.dataset(pylance_copy).update(
        {"text": "'new ' || CAST(id AS STRING)", "g": "g * 2"}, theirs
    )
    wanted = content(pylance_copy)
    changed = {
        row["id"] for row in checked(source).to_table(columns=["id"], filter=theirs).to_pylist()
    }
    assert 0 < len(changed) < len(before)
    for mode in ("rows", "columns"):
        path = copied(source, tmp_path / mode)
        result = LanceTable.forPath(spark, str(path)).update(ours, values, mode=mode)
        assert (result.version, result.num_updated_rows) == (4, len(changed))
        table_rows = content(path)
        for row, expected in zip(table_rows, wanted, strict=True):
            for name in ("id", "g", "text", "inner", "vector"):
                assert row[name] == expected[name], (mode, row["id"], name)
            old = before[row["id"]]
            if mode == "columns":
                assert row["_rowaddr"] == old["_rowaddr"]
            if stable:
                assert row["_rowid"] == old["_rowid"]
                assert row["_row_created_at_version"] == old["_row_created_at_version"]
                last = 4 if row["id"] in changed else old["_row_last_updated_at_version"]
                assert row["_row_last_updated_at_version"] == last
    assert mode_of(tmp_path / "columns") == "rewrite_columns"


def test_auto_chooses_the_cheaper_mode(spark: Any, tmp_path: Path) -> None:
    def updated(name: str, condition: str | None, values: dict[str, Any]) -> tuple[str, int]:
        path = copied(source, tmp_path / name)
        result = LanceTable.forPath(spark, str(path)).update(condition, values)
        checked(path)
        return mode_of(path), result.num_updated_rows

    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("small", pa.int32()),
            ("vector", pa.list_(pa.float32(), 64)),
            pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
        ]
    )
    ids = np.arange(1_000)
    random_floats = np.random.default_rng(1).random(64_000, np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(random_floats), 64)
    table = pa.table([ids, ids.astype("i4"), vectors, [b"x"] * 1_000], schema=schema)
    source = tmp_path / "source"
    write_dataset(table, str(source), max_rows_per_file=250)
    columns, rows = "rewrite_columns", "rewrite_rows"
    assert updated("one", "id = 3", {"small": "1"}) == (rows, 1)
    assert updated("few", "id % 100 = 3", {"small": "1"}) == (rows, 10)
    assert updated("many", "id % 2 = 1", {"small": "small + 1"}) == (columns, 500)
    assert updated("fragment", "id < 250", {"small": "1"}) == (columns, 250)
    assert updated("all", None, {"small": "small + 1"}) == (columns, 1_000)
    # Rewriting rows costs all their bytes. Rewriting columns costs their bytes twice.
    assert updated("wide", None, {"vector": F.reverse("vector")}) == (rows, 1_000)
    assert updated("blob", None, {"blob": F.lit(b"y")}) == (rows, 1_000)
    path = copied(source, tmp_path / "refused")
    with pytest.raises(UnsupportedError, match="'blob'"):
        LanceTable.forPath(spark, str(path)).update_columns({"blob": F.lit(b"y")})
    assert checked(path).version == 1


def test_all_values_of_columns(spark: Any, tmp_path: Path) -> None:
    """Expressions read old values, also of other rows. Existing files do not change."""
    path = write(tmp_path / "t")
    before = content(path)
    files = {file.name: file.stat().st_mtime_ns for file in (path / "data").iterdir()}
    table = LanceTable.forPath(spark, str(path))
    result = table.update_columns(
        {
            "G": "id + 1",
            "vector": F.transform("vector", lambda x: x + F.col("g").cast("float")),
            "inner": F.struct((F.col("id") * 2).alias("a"), F.lit(None).cast("string").alias("b")),
        },
        commit_message="all",
    )
    assert (result.version, result.num_updated_rows) == (4, len(before))
    for row in before:
        add = row["g"]
        row["vector"] = [None if add is None else number + add for number in row["vector"]]
        row |= {"g": row["id"] + 1, "inner": {"a": 2 * row["id"], "b": None}}
        row["_row_last_updated_at_version"] = 4
    assert content(path) == before
    files_after = {file.name: file.stat().st_mtime_ns for file in (path / "data").iterdir()}
    assert {name: files_after[name] for name in files} == files
    assert len(files_after) - len(files) == 5
    properties = checked(path).read_transaction(4).transaction_properties
    assert properties["__lance_commit_message"] == "all"

    # Rows of an expression that needs other rows are sorted by address again.
    window = Window.partitionBy(F.col("id") % 3).orderBy(F.desc("id"))
    table.update_columns({"g": F.row_number().over(window)})
    ranks: dict[int, int] = {}
    for row in reversed(before):
        ranks[row["id"] % 3] = ranks.get(row["id"] % 3, 0) + 1
        row |= {"g": ranks[row["id"] % 3], "_row_last_updated_at_version": 5}
    assert content(path) == before
    spark.range(0, 100, 2).createOrReplaceTempView("update_columns_even")
    result = table.update("id IN (SELECT id FROM update_columns_even)", {"g": "-1"}, mode="columns")
    even = [row for row in before if row["id"] < 100 and row["id"] % 2 == 0]
    for row in even:
        row |= {"g": -1, "_row_last_updated_at_version": 6}
    assert result.num_updated_rows == len(even)
    assert content(path) == before
    assert table.update("id < 0", {"g": "1"}, mode="columns").num_updated_rows == 0
    # The random condition is evaluated once for each row.
    result = table.update("rand() < 0.5", {"g": "1000"}, mode="columns")
    assert sum(row["g"] == 1000 for row in content(path)) == result.num_updated_rows > 0


def test_failures_leave_the_table_unchanged(spark: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "t")
    table = LanceTable.forPath(spark, str(path))
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        table.update_columns({"g": "CASE WHEN id = 324 THEN text ELSE '1' END"})
    with pytest.raises(InvalidInputError, match=r"set\['g'\]: .*nothing"):
        table.update_columns({"text": "'x'", "g": "nothing + 1"})
    with pytest.raises(InvalidInputError, match=r"set\['g'\]: .*Syntax error"):
        table.update_columns({"text": "'x'", "g": "id +"})
    with pytest.raises(InvalidInputError, match="set must map"):
        table.update_columns({})
    table.alter_column("text", nullable=True)
    table.alter_column("id", nullable=False)
    version = lance.dataset(path).version
    with pytest.raises(InvalidInputError, match="id"):
        table.update_columns({"id": "nullif(id, 201)"})
    assert checked(path).version == version


def test_concurrent_commits(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of the same fragment cause a replan; other changes and appends do not."""
    source = write(tmp_path / "source")
    commit = rewrite_columns.commit_updates
    concurrent_changes: list[Callable[[lance.LanceDataset], object]] = []
    planned: list[int] = []

    def slow(table: Any, *arguments: Any, **options: Any) -> Any:
        planned.append(table.version)
        if concurrent_changes:
            concurrent_changes.pop()(lance.dataset(path))
        return commit(table, *arguments, **options)

    monkeypatch.setattr(rewrite_columns, "commit_updates", slow)
    new = rows_of(COUNT + 5).slice(COUNT)
    for name, concurrent_change, times, wanted in (
        ("delete", lambda d: d.delete("id = 100"), 2, {100: None}),
        ("update", lambda d: d.update({"g": "7"}, "id = 101"), 2, {101: 14, 102: 4}),
        ("append", lambda d: d.insert(new), 1, {COUNT + 2: 2, 102: 4}),
        ("apart", lambda d: d.delete("id = 1"), 1, {1: None, 102: 4}),
    ):
        path = copied(source, tmp_path / name)
        planned.clear()
        concurrent_changes.append(concurrent_change)
        condition = None if name != "apart" else "id >= 80"
        LanceTable.forPath(spark, str(path)).update(condition, {"g": "g * 2"}, mode="columns")
        assert len(planned) == times, name
        new_groups = {row["id"]: row["g"] for row in content(path)}
        before = {row["id"]: row["g"] for row in content(source)}
        assert {number: new_groups.get(number) for number in wanted} == wanted, name
        doubled = {
            number: g if name == "apart" and number < 80 else None if g is None else 2 * g
            for number, g in before.items()
        }
        unchanged = {
            number: g for number, g in new_groups.items() if number not in wanted and number < COUNT
        }
        assert unchanged == {number: g for number, g in doubled.items() if number not in wanted}
    concurrent_changes.append(lambda d: d.delete("id = 100"))
    path = copied(source, tmp_path / "once")
    with pytest.raises(CommitConflictError) as error:
        LanceTable.forPath(spark, str(path)).update_columns({"g": "1"}, conflict_retries=0)
    assert error.value.retryable
    assert checked(path).version == 4


def test_large_table(spark: Any, large: Large) -> None:
    path, expected = large()
    lance.dataset(path).delete("id % 1000 = 5")
    table = LanceTable.forPath(spark, str(path))
    result = table.update("g < 60", {"text": "concat(text, '!')"})
    assert mode_of(path) == "rewrite_columns"
    table.update_columns({"g": "g + id % 7"})
    table_rows = checked(path).to_table().sort_by("id")
    ids = expected["id"].to_numpy()
    kept = expected.filter(pa.array(ids % 1000 != 5))
    small = pc.fill_null(pc.less(kept["g"], 60), False)
    assert result.num_updated_rows == pc.sum(small).as_py()
    texts = pc.if_else(small, pc.binary_join_element_wise(kept["text"], "!", ""), kept["text"])
    assert table_rows["text"].equals(texts)
    added = pa.array((kept["id"].to_numpy() % 7).astype(np.int32))
    assert table_rows["g"].equals(pc.add(kept["g"], added))
    for name in ("id", "ts", "vector"):
        assert table_rows[name].combine_chunks().equals(kept[name].combine_chunks())
    assert len(checked(path).get_fragments()) == 50


def test_all_cores_compute(spark: Any, tmp_path: Path) -> None:
    """Rows that one task could read are computed by one task per core."""
    path = tmp_path / "t"
    write_dataset(pa.table({"a": np.arange(300_000)}), str(path), max_rows_per_file=100_000)
    table = LanceTable.forPath(spark, str(path))
    rows = frame(table._handle, table.dataset(), ["a"], whole_fragments=True)
    numbers = rows.select(
        F.spark_partition_id().alias("p"), F.shiftright("_rowaddr", 32).alias("f")
    )
    partitions = sorted(tuple(row) for row in numbers.distinct().collect())
    assert partitions == [(0, 0), (0, 1), (1, 2)]
    small_partitions = LanceTable.forPath(spark, str(path), target_rows_per_partition=1)
    handle = small_partitions._handle
    rows = frame(handle, handle.dataset(), ["a"], whole_fragments=True)
    assert rows.rdd.getNumPartitions() == 3
