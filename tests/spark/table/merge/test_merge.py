"""`LanceTable.merge`: clauses against a model in Python, rows of all types, errors."""

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

from lance_spark import LanceTable
from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import (
    AmbiguousMergeError,
    ArgumentTypeError,
    InvalidInputError,
    SchemaMismatchError,
)
from lance_spark.mutations.rows import update as row_update
from tests.spark.table.merge.model import ON, AmbiguousError, Row, merged, some_clauses
from tests.spark.table.tables import ROWS, checked, delete_meanwhile, left_over
from tests.spark.table.test_update import kinds

Large = Callable[..., tuple[Path, pa.Table]]
NAMES = ["k", "j", "v", "text"]
LINEAGE = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def small_rows() -> pa.Table:
    """Return keys, some of them null, values, and columns that merges do not name."""
    n = np.arange(40)
    return pa.table(
        {
            "k": pa.array(n * 2, mask=n % 13 == 5),
            "j": pa.array((n % 3).astype(np.int32)),
            "v": pa.array(n * 3 + 1, mask=n % 7 == 3),
            "text": [f"text {number}" for number in n],
            "ts": pa.array(n * 1_000_000_007 + 1, pa.timestamp("ns")),
            "vector": pa.array([[number, -number] for number in n], pa.list_(pa.float32(), 2)),
        }
    )


def source_rows(choose: random.Random, repeated: bool) -> list[Row]:
    keys: list[int | None] = [*choose.sample(range(0, 120, 2), 20), 7, None, None]
    if repeated:
        keys += choose.sample(keys[:20], 3)
    return [
        {
            "k": key,
            "j": choose.randrange(3),
            "v": choose.choice([None, *range(0, 1000, 50)]),
            "text": choose.choice([None, "a", "b"]),
            "flag": choose.choice([True, False, None]),
        }
        for key in keys
    ]


def write_small(path: Path, stable: bool = True) -> None:
    write_dataset(small_rows(), str(path), max_rows_per_file=12, enable_stable_row_ids=stable)
    lance.dataset(path).delete("j = 2 AND v > 100")


def rows_by_id(path: Path, version: int | None = None) -> dict[int, Row]:
    table = open_dataset(str(path), version).to_table([*NAMES, "ts", "vector", *LINEAGE])
    table = table.set_column(4, "ts", table["ts"].cast(pa.int64()))
    return {row.pop("_rowid"): row for row in table.to_pylist()}


@pytest.mark.sample(5)
@pytest.mark.parametrize("seed", [5, 12, 21, 23, 25, 26, 27, 29, 30, 37, 38])
def test_clauses_agree_with_the_model(
    spark: Any, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 3:
        # The keys of the source filter tables of any size.
        monkeypatch.setattr("lance_spark.spark.table.merge.join.MIN_TABLE_ROWS", 0)
    path = tmp_path / "t"
    stable = seed != 26
    write_small(path, stable)
    choose = random.Random(seed)
    before = rows_by_id(path)
    join_condition, clauses = ON[seed % len(ON)], some_clauses(choose)
    source = source_rows(choose, repeated=seed in (25, 37))
    texts = [text for clause in clauses for text in clause.texts]
    frame = spark.createDataFrame(source, "k bigint, j int, v bigint, text string, flag boolean")
    if "s.flag" not in texts:
        frame = frame.drop("flag")
    rows = {number: {name: row[name] for name in NAMES} for number, row in before.items()}
    builder = (
        LanceTable.forPath(spark, str(path)).alias("t").merge(frame.alias("s"), join_condition[0])
    )
    for clause in clauses:
        builder = clause.add_to(builder)
    try:
        wanted = merged(rows, source, join_condition, clauses, NAMES)
    except AmbiguousError:
        with pytest.raises(AmbiguousMergeError, match="_rowaddr"):
            builder.execute()
        assert lance.dataset(path).version == 2
        assert left_over(path) == set()
        return
    result = builder.execute()
    dataset = checked(path)
    counts = (result.num_inserted_rows, result.num_updated_rows, result.num_deleted_rows)
    assert counts == (len(wanted.inserted), len(wanted.updated), len(wanted.deleted))
    assert result.version == dataset.version == (3 if any(counts) else 2)
    after = rows_by_id(path)
    if not stable:
        shown = sorted(map(repr, ([row[name] for name in NAMES] for row in after.values())))
        every = [*wanted.kept.values(), *wanted.inserted]
        assert shown == sorted(map(repr, ([row[name] for name in NAMES] for row in every)))
        return
    new = {number: row for number, row in after.items() if number not in before}
    assert after.keys() - new.keys() == wanted.kept.keys()
    for number, row in wanted.kept.items():
        expected = dict(before[number]) | row
        if number in wanted.updated:
            expected["_row_last_updated_at_version"] = 3
        assert after[number] == expected
    fresh: Row = {"ts": None, "vector": None}
    fresh |= {"_row_created_at_version": 3, "_row_last_updated_at_version": 3}
    assert sorted(map(repr, new.values())) == sorted(repr(row | fresh) for row in wanted.inserted)


def test_other_columns_keep_their_values(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_dataset(kinds(), path, max_rows_per_file=25, enable_stable_row_ids=True)
    names = [*kinds().schema.names, *LINEAGE]
    before = open_dataset(path).to_table(names, blob_handling="all_binary")
    # Children of structs are assigned by name. Two clauses give values for different columns.
    source = spark.range(90, 110).selectExpr(
        "id",
        "cast(id as string) AS n",
        "named_struct('B', 'new', 'a', id * 2) AS inner",
        "array(1f, 2f, cast(id as float)) AS vector",
    )
    table = LanceTable.forPath(spark, path)
    merge = table.merge(source, "target.id = source.id AND target.n IS NOT NULL")
    result = (
        merge.whenMatchedUpdate("target.id = 95", {"target.half": "0.5", "`kind`": "'other'"})
        .whenMatchedUpdateAll("target.id > 92")
        .whenMatchedDelete("target.id = 91")
        .whenNotMatchedInsertAll("source.id < 105")
        .whenNotMatchedInsert(None, {"target.`id`": "source.id", "blob": "cast('blob' as binary)"})
        .whenNotMatchedBySourceUpdate("target.id IN (1, 2)", {"n": "target.n - 1"})
        .execute()
    )
    assert (result.num_inserted_rows, result.num_updated_rows, result.num_deleted_rows) == (
        10,
        9,
        1,
    )
    checked(tmp_path / "t")
    after = open_dataset(path).to_table(names, blob_handling="all_binary").sort_by("id")
    old = {row["id"]: row for row in before.to_pylist()}
    new_rows = {row["id"]: row for row in after.to_pylist()}
    for n in (1, 2):
        old[n] |= {"n": n - 1}
    for n in (93, 94, *range(96, 100)):
        old[n] |= {"n": n, "inner": {"a": 2 * n, "b": "new"}, "vector": [1.0, 2.0, float(n)]}
    old[95] |= {"half": 0.5, "kind": "other"}
    for n in (1, 2, *range(93, 100)):
        old[n]["_row_last_updated_at_version"] = 2
    del old[91]
    assert {n: row for n, row in new_rows.items() if n < 100} == old
    assert new_rows[104]["inner"] == {"a": 208, "b": "new"}
    assert (new_rows[104]["n"], new_rows[104]["blob"], new_rows[104]["ts"]) == (104, None, None)
    assert (new_rows[105]["n"], new_rows[105]["blob"]) == (None, b"blob")
    assert len({row["_rowid"] for row in new_rows.values()}) == 109


@pytest.fixture
def small(spark: Any, tmp_path: Path) -> LanceTable:
    write_small(tmp_path / "t")
    return LanceTable.forPath(spark, str(tmp_path / "t")).alias("t")


def test_repeated_matches_are_ambiguous(spark: Any, small: LanceTable, tmp_path: Path) -> None:
    twice = spark.range(0, 30).selectExpr("id - id % 2 AS k", "id AS v").alias("s")
    rows = small.dataset().count_rows()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "3")
    try:
        merge = small.merge(twice, "t.k = s.k")
        with pytest.raises(AmbiguousMergeError, match=r"k=0 at _rowaddr 0 \(fragment 0\)"):
            merge.whenMatchedUpdate(set={"v": "s.v"}).execute()
        with pytest.raises(AmbiguousMergeError, match="k=8 at"):
            merge.whenMatchedUpdate("s.v in (8, 9)", {"v": "s.v"}).whenMatchedDelete().execute()
        assert lance.dataset(tmp_path / "t").version == 2
        assert left_over(tmp_path / "t") == set()
        # Two source rows match each row. The update applies to one of them; both may delete it.
        result = merge.whenMatchedUpdate("s.v % 2 = 1", {"v": "s.v"}).execute()
        assert result.num_updated_rows == 14
        assert merge.whenMatchedDelete().execute().num_deleted_rows == 14
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert checked(tmp_path / "t").count_rows() == rows - 14


@pytest.mark.parametrize("with_rule", [False, True])
def test_the_table_is_its_own_source(
    spark: Any, small: LanceTable, tmp_path: Path, with_rule: bool, request: pytest.FixtureRequest
) -> None:
    from pyspark.sql import functions as F

    if with_rule:
        request.getfixturevalue("pushdown")(True)
    before = rows_by_id(tmp_path / "t")
    source = small.toDF(["k", "v"], with_row_id=True).alias("s").where("v > 60")
    merge = small.merge(source, F.col("t.k") == F.col("s.k") - 2)
    result = merge.whenMatchedUpdate(set={"v": F.col("s.v") * 100}).execute()
    after = rows_by_id(tmp_path / "t")
    values = {row["k"]: row["v"] for row in before.values() if row["k"] is not None}
    hit = 0
    for number, row in before.items():
        source_value = values.get(row["k"] + 2) if row["k"] is not None else None
        if source_value is not None and source_value > 60:
            row["v"], row["_row_last_updated_at_version"] = source_value * 100, 3
            hit += 1
        assert after[number] == row
    assert result.num_updated_rows == hit > 0
    # The condition reads row ids of the table, and a column of the source's DataFrame.
    reader = spark.read.format("lance").options(columns="j", with_row_id=True)
    ids = reader.load(str(tmp_path / "t")).where("j = 1")
    merge = small.merge(ids, F.col("t._rowid") == ids["_rowid"])
    assert merge.whenMatchedDelete().execute().num_deleted_rows == len(
        [row for row in before.values() if row["j"] == 1]
    )


def test_indexes_of_pylance_stay_valid(spark: Any, small: LanceTable, tmp_path: Path) -> None:
    path = tmp_path / "t"
    for name in ("k", "v"):
        lance.dataset(path).create_scalar_index(name, "BTREE")
    source = spark.range(0, 120, 6).selectExpr("id AS k", "-id AS v").alias("s")
    merge = small.merge(source, "t.k = s.k").whenMatchedUpdate("s.k > 20", {"v": "s.v"})
    merge.whenMatchedDelete().whenNotMatchedInsertAll().execute()
    dataset = checked(path)
    for condition in ("k < 30", "k >= 70", "v < 0", "v > 20", "k = 24", "v = -24", "v IS NULL"):
        tables = [
            dataset.scanner(["k", "v"], filter=condition, use_scalar_index=use).to_table()
            for use in (True, False)
        ]
        assert tables[0].sort_by("k").equals(tables[1].sort_by("k")), condition
        assert len(tables[0]) > 0


def test_a_merge_without_changes_commits_nothing(
    spark: Any, small: LanceTable, tmp_path: Path
) -> None:
    source = spark.createDataFrame([(1000, 1)], "k bigint, v bigint").alias("s")
    merge = small.merge(source, "t.k = s.k").whenMatchedUpdateAll()
    result = merge.whenNotMatchedInsertAll("s.v > 1").execute()
    assert (result.version, result.num_inserted_rows, result.num_updated_rows) == (2, 0, 0)
    assert checked(tmp_path / "t").version == 2


def test_invalid_clauses_are_refused(spark: Any, small: LanceTable, tmp_path: Path) -> None:
    source = spark.createDataFrame([(2, 1, "x")], "k bigint, v bigint, other string").alias("s")
    merge = small.merge(source, "t.k = s.k")
    with pytest.raises(InvalidInputError, match="whenMatched"):
        merge.execute()
    with pytest.raises(InvalidInputError, match="only the last"):
        merge.whenMatchedDelete().whenMatchedUpdateAll("s.v = 1")
    with pytest.raises(InvalidInputError, match="only the last"):
        merge.whenNotMatchedInsertAll().whenMatchedDelete().whenNotMatchedInsert(None, {"k": "1"})
    for call in (merge.whenMatchedUpdate, merge.whenNotMatchedBySourceUpdate):
        with pytest.raises(ArgumentTypeError, match="set cannot be None"):
            call("t.v = 1")
        with pytest.raises(InvalidInputError, match="set must map"):
            call("t.v = 1", {})
    with pytest.raises(ArgumentTypeError, match="values cannot be None"):
        merge.whenNotMatchedInsert()
    with pytest.raises(SchemaMismatchError, match="'other'"):
        merge.whenMatchedUpdateAll().execute()
    for name in ("nowhere", "s.v", "t.v.w", "t."):
        with pytest.raises(SchemaMismatchError, match=f"no column '{name}'"):
            merge.whenMatchedUpdate(set={name: "1"}).execute()
    with pytest.raises(InvalidInputError, match="two values"):
        merge.whenMatchedUpdate(set={"v": "1", "V": "2"}).execute()
    with pytest.raises(InvalidInputError, match="AMBIGUOUS"):
        merge.whenMatchedUpdate(set={"v": "v + 1"}).execute()
    with pytest.raises(InvalidInputError, match="UNRESOLVED"):
        merge.whenMatchedDelete("t.v = s.v").whenNotMatchedInsert("t.v = 1", {"v": "1"}).execute()
    with pytest.raises(InvalidInputError, match="UNRESOLVED"):
        merge.whenNotMatchedInsertAll("other = 1").whenNotMatchedBySourceDelete("s.v = 1").execute()
    with pytest.raises(InvalidInputError, match="nothing"):
        merge.whenMatchedUpdate("s.nothing", {"v": "1"}).execute()
    with pytest.raises(InvalidInputError, match=r"F\.lit\(3\)"):
        merge.whenMatchedUpdate(set={"v": 3}).execute()  # type: ignore[dict-item]
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        merge.whenMatchedUpdate(set={"v": "s.other"}).execute()
    old = LanceTable.forPath(spark, str(tmp_path / "t"), version=1).alias("t")
    with pytest.raises(InvalidInputError, match="version 1"):
        old.merge(source, "t.k = s.k").whenMatchedDelete().execute()
    assert lance.dataset(tmp_path / "t").version == 2
    assert left_over(tmp_path / "t") == set()


def test_non_nullable_columns(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
    write_dataset(pa.table({"id": [1, 2], "v": [1, 2]}, schema=schema), str(tmp_path / "t"))
    table = LanceTable.forPath(spark, str(tmp_path / "t"))
    source = spark.createDataFrame([(2, 20), (None, 5)], "id bigint, v bigint")
    merge = table.merge(source, "target.id = source.id")
    with pytest.raises(SchemaMismatchError, match="'id' must not be null"):
        merge.whenNotMatchedInsert(values={"v": "source.v"}).execute()
    with pytest.raises(InvalidInputError, match="id"):
        merge.whenNotMatchedInsertAll().execute()
    with pytest.raises(InvalidInputError, match="id"):
        merge.whenMatchedUpdate(set={"id": "nullif(source.id, 2)"}).execute()
    assert left_over(tmp_path / "t") == set()
    # Without a primary key, a row is inserted as often as the source has it.
    result = merge.whenNotMatchedInsert(values={"id": "7"}).execute()
    assert result.num_inserted_rows == 1
    unmatched = table.merge(source.union(source).where("v > 5"), "target.id = source.id * 10")
    assert unmatched.whenNotMatchedInsertAll().execute().num_inserted_rows == 2
    assert sorted(checked(tmp_path / "t").to_table()["id"].to_pylist()) == [1, 2, 2, 2, 7]


def test_concurrent_changes(
    spark: Any, small: LanceTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    changes = ["k = 8", "k = 4"]
    delete_meanwhile(monkeypatch, row_update, path, changes)
    source = spark.createDataFrame([(2, -1), (4, -2), (999, -3)], "k bigint, v bigint").alias("s")
    merge = small.merge(source, "t.k = s.k", commit_message="merged")
    merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()
    # pylance deletes a row of the same fragment, then a row to update, which is inserted instead.
    first = merge.execute()
    assert (first.num_updated_rows, first.num_inserted_rows) == (2, 1)
    second = merge.execute()
    assert (second.num_updated_rows, second.num_inserted_rows) == (2, 1)
    rows = checked(path).to_table(["k", "v"], filter="v < 0").sort_by("k").to_pydict()
    assert rows == {"k": [2, 4, 999], "v": [-1, -2, -3]}
    transaction = open_dataset(str(path)).read_transaction(second.version)
    assert transaction is not None
    assert "merged" in transaction.properties.values()


def test_large_table(spark: Any, large: Large) -> None:
    path, rows = large()
    # One row of 200 changes, and as many rows are new.
    spark.conf.set("spark.sql.shuffle.partitions", "40")
    source = spark.range(0, 2 * ROWS, 200, 3).selectExpr(
        "id", "cast(id % 7 as int) AS g", "concat('new ', id) AS text"
    )
    table = LanceTable.forPath(spark, str(path))
    merge = table.merge(source, "target.id = source.id")
    try:
        result = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert (result.num_updated_rows, result.num_inserted_rows) == (ROWS // 200, ROWS // 200)
    dataset = checked(path)
    # A change of few rows in all fragments writes few files, for any number of shuffle partitions.
    assert len(dataset.get_fragments()) <= 54
    merged_table = dataset.to_table().sort_by("id")
    ids = merged_table["id"].to_numpy()
    hit = ids % 200 == 0
    assert len(ids) == ROWS + ROWS // 200
    assert (
        merged_table["text"]
        .filter(hit)
        .equals(
            pc.binary_join_element_wise(
                "new", pc.cast(pa.chunked_array([ids[hit]]), pa.string()), " "
            )
        )
    )
    assert np.array_equal(merged_table["g"].filter(hit).to_numpy(), ids[hit] % 7)
    unchanged = np.flatnonzero(rows["id"].to_numpy() % 200)
    for name in ("g", "text", "ts", "vector"):
        assert (
            merged_table[name]
            .filter(~hit)
            .combine_chunks()
            .equals(rows[name].take(unchanged).combine_chunks())
        ), name
    changed = np.arange(0, ROWS, 200)
    for name in ("ts", "vector"):
        kept = merged_table[name].filter(hit & (ids < ROWS)).combine_chunks()
        assert kept.equals(rows[name].take(changed).combine_chunks()), name
    assert merged_table["vector"].slice(ROWS).null_count == ROWS // 200
