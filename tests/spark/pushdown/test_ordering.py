"""Tables that `optimize` has sorted: Spark does not sort rows again that a scan returns in order.

Spark's answers over Parquet decide. Changes of the table by pylance and by this package must leave
no wrong order behind; the rows themselves decide that.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as sf

from lance_spark import LanceTable, open_dataset
from lance_spark.dataset.dataset import Dataset
from lance_spark.spark.read.ordering import reported_order
from lance_spark.spark.table.jobs import sort
from lance_spark.spark.types.mapping import to_spark_schema
from lance_spark.table.sort_order import KEY, order_of
from tests.proto.tables import column_file
from tests.spark.pushdown.test_top_rows import part_of
from tests.support.spark.metrics import counted
from tests.support.tables.beside_parquet import write_beside_parquet

PARTS = 3
#: Sorts of a table. The first columns have few values, so that the others decide too.
SORTS = [
    ["small", "word", "ratio", "id"],
    ["flag", "half", "day", "cents", "id"],
    ["raw", "clock", "at", "id"],
    ["whole", "count", "id"],
]
#: Rows of the tables that are changed.
CHANGED_ROWS = 4_000


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def order_in(frame: Any) -> str | None:
    """Return the order that EXPLAIN shows for the scan."""
    text = plan_of(frame)
    return text.partition("ordered=[")[2].partition("]")[0] if "ordered=[" in text else None


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same rows as a Lance table, from which rows were deleted, and as Parquet."""
    folder = tmp_path_factory.mktemp("ordering")
    dtypes = {"whole": pa.int64(), "clock": pa.timestamp("us")}
    return write_beside_parquet(folder, [part_of(number) for number in range(PARTS)], dtypes)


def normalized(frame: Any, keys: list[str]) -> list[str]:
    """Return the keys of all rows; both zeros as one, and both NaN."""
    floats = {"ratio", "half"}
    columns = [(sf.col(key) + sf.lit(0.0)) if key in floats else sf.col(key) for key in keys]
    return [repr(row) for row in frame.select(*columns).collect()]


@pytest.mark.parametrize("keys", SORTS, ids=lambda keys: keys[0])
def test_partitions_are_in_sparks_order(
    spark: Any,
    pushdown: Callable[..., None],
    paths: tuple[str, str],
    keys: list[str],
    tmp_path: Path,
) -> None:
    pushdown(True)
    path = str(tmp_path / "t.lance")
    shutil.copytree(paths[0], path)
    LanceTable.forPath(spark, path).optimize(sortBy=keys, target_rows_per_fragment=2_000)
    reader = spark.read.format("lance").option("target_rows_per_partition", 700)
    table = reader.load(path)
    assert order_in(table) == ", ".join(f"{key} ASC" for key in keys)
    assert order_in(table.select(*keys[:2], "text")) == f"{keys[0]} ASC, {keys[1]} ASC"
    assert order_in(table.select(*keys[1:])) is None
    other = spark.read.schema(table.schema).parquet(paths[1])
    assert re.search(r" partitions=(8|9|1\d) ", plan_of(table))
    assert normalized(table, keys) == normalized(other.orderBy(*keys), keys)


@pytest.fixture(scope="module")
def sorted_table(
    spark: Any, pushdown: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Rows in the order of `id`, with nulls first and repeated values, in four fragments."""
    path = tmp_path_factory.mktemp("sorted") / "t.lance"
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 2_000, CHANGED_ROWS).astype(np.int32)
    keys = pa.array(ids, mask=rng.random(CHANGED_ROWS) < 0.01)
    words = pa.array([f"w{number % 97}" for number in range(CHANGED_ROWS)])
    rows = pa.table({"id": keys, "word": words, "value": rng.random(CHANGED_ROWS)})
    lance.write_dataset(rows, path, max_rows_per_file=1_500, data_storage_version="2.1")
    pushdown(True)
    table = LanceTable.forPath(spark, str(path))
    table.optimize(sortBy=["id", "word"], target_rows_per_fragment=1_000)
    return path


@pytest.fixture
def path(sorted_table: Path, tmp_path: Path) -> Path:
    """A copy of the table, to be changed."""
    return Path(shutil.copytree(sorted_table, tmp_path / "t.lance"))


def test_the_commit_records_the_order(sorted_table: Path) -> None:
    dataset = lance.dataset(sorted_table)
    # One commit reserves the fragments, one sorts.
    assert dataset.version == 3
    value = json.loads(dataset.config()[KEY])
    assert [column["field"] for column in value["columns"]] == [0, 1]
    assert value["fragments"] == len(dataset.get_fragments()) == 4
    assert len(dataset.config()[KEY]) < 300


QUERIES: list[tuple[str, Callable[[Any], Any], int]] = [
    ("in partitions", lambda t: t.sortWithinPartitions("id", "word"), 1),
    ("in another order", lambda t: t.sortWithinPartitions("word"), 0),
    ("descending", lambda t: t.sortWithinPartitions(sf.desc("id")), 0),
    ("nulls last", lambda t: t.sortWithinPartitions(sf.asc_nulls_last("id")), 0),
    ("groups", lambda t: t.groupBy("id").agg(sf.max(sf.upper("word")), sf.count("*")), 1),
    ("filtered groups", lambda t: t.where("value > 0.5").groupBy("id").agg(sf.max("word")), 1),
    (
        "first rows of groups",
        lambda t: t.selectExpr(
            "*", "row_number() over (partition by id order by word, value) as n"
        ).where("n <= 2"),
        0,
    ),
    (
        "first words of groups",
        lambda t: (
            t.select("id", "word")
            .selectExpr("*", "rank() over (partition by id order by word) as n")
            .where("n = 1")
        ),
        1,
    ),
    ("all rows", lambda t: t.orderBy("id", "word", "value"), 0),
    (
        "broadcast",
        lambda t: (
            t.join(
                sf.broadcast(t.where("value < 0.003").select(sf.col("value").alias("v"))),
                sf.expr("value * value < v"),
            )
            .groupBy("id")
            .agg(sf.max(sf.upper("word")))
        ),
        1,
    ),
]


@pytest.mark.parametrize(
    ("query", "saved"), [query[1:] for query in QUERIES], ids=[query[0] for query in QUERIES]
)
def test_queries_without_a_sort(
    spark: Any, sorted_table: Path, query: Callable[[Any], Any], saved: int
) -> None:
    """The same plan, but for a sort, over a version that is sorted and over one that is not."""
    reader = spark.read.format("lance").option("target_rows_per_partition", 900)
    ordered = query(reader.load(str(sorted_table)))
    other = query(reader.option("version", 1).load(str(sorted_table)))
    with_sort, without = plan_of(other), plan_of(ordered)
    assert with_sort.count("Sort [") - without.count("Sort [") == saved
    assert with_sort.count("Exchange") == without.count("Exchange")
    if saved:
        assert sorted(map(repr, ordered.collect())) == sorted(map(repr, other.collect()))


def test_the_plan_of_groups(spark: Any, sorted_table: Path) -> None:
    """Tasks aggregate the rows as they read them; only the groups are sorted, after a shuffle."""
    reader = spark.read.format("lance")
    plans = [
        plan_of(frame.groupBy("id").agg(sf.max(sf.upper("word"))))
        for frame in (
            reader.option("version", 1).load(str(sorted_table)),
            spark.read.format("lance").load(str(sorted_table)),
        )
    ]
    nodes = [[line.split("+- ")[-1].split(" ")[0] for line in plan.splitlines()] for plan in plans]
    names = [[name.partition("(")[0] for name in plan if name] for plan in nodes]
    final = ["AdaptiveSparkPlan", "SortAggregate", "Sort", "Exchange", "SortAggregate"]
    assert names == [[*final, "Sort", "BatchScan"], [*final, "BatchScan"]]


TOPS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda f: f.orderBy("id", "word").limit(700).select("id", "word"), "partitions=2 fragments=1"),
    (lambda f: f.where("value > 0.9").orderBy("id").limit(20).select("id"), "partitions=8"),
    (lambda f: f.orderBy(sf.desc("id"), sf.desc("word")).limit(9).select("id"), "partitions=1 "),
    (lambda f: f.where("id > 9").orderBy(sf.desc("id")).limit(9).select("id"), "partitions=8 "),
    (lambda f: f.orderBy("id", "word", "value").limit(700), "partitions=8 "),
    (lambda f: f.orderBy(sf.desc_nulls_first("id")).limit(90).select("id"), "partitions=8 "),
]


@pytest.mark.parametrize(("query", "scan"), TOPS)
def test_first_rows(
    spark: Any,
    pushdown: Callable[..., None],
    sorted_table: Path,
    query: Callable[[Any], Any],
    scan: str,
) -> None:
    reader = spark.read.format("lance").option("target_rows_per_partition", 500)
    first = query(reader.load(str(sorted_table)))
    expected = query(reader.option("version", 1).load(str(sorted_table))).collect()
    assert scan in plan_of(first)
    assert first.collect() == expected
    pushdown(True, True)
    try:
        assert query(reader.option("version", 3).load(str(sorted_table))).collect() == expected
    finally:
        pushdown(True)


def test_few_rows_are_read(spark: Any, path: Path) -> None:
    """Rows of the first fragment are deleted, so that its first slice does not have enough."""
    table = LanceTable.forPath(spark, str(path))
    table.delete("id is null or id < 300 or id > 1500 and id % 2 = 0")
    reader = spark.read.format("lance").option("target_rows_per_partition", 250)
    rows = reader.load(str(path))
    ids = sorted(row.id for row in rows.select("id").collect())
    first, last = rows.orderBy("id").limit(10), rows.orderBy(sf.desc("id")).limit(300)
    assert [row.id for row in first.collect()] == ids[:10]
    assert [row.id for row in last.collect()] == ids[::-1][:300]
    assert sum(counted(first)) < 700
    # The first rows of some partitions, and not of all.
    assert 300 < sum(counted(last)) < len(ids) / 2


SCANS: dict[str, Callable[[Any], Any]] = {
    "all rows": lambda f: f,
    "a filter": lambda f: f.where("value > 0.3 and word <> 'w5'"),
    "few rows": lambda f: f.where("word in ('w5', 'w7')"),
    "other units of time": lambda f: f.where("clock > timestamp_ntz '1970-01-01 00:10:00'"),
    "an expression": lambda f: f.where("length(word) = 2"),
    "limit": lambda f: f.where("value > 0.3").limit(2_000),
    "broadcast": lambda f: f.join(sf.broadcast(f.sparkSession.range(30, 1000, 7)), "id"),
}


@pytest.fixture(scope="module")
def changed_table(spark: Any, sorted_table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sorted table with deleted rows, columns in files of their own, and a zone map."""
    path = Path(shutil.copytree(sorted_table, tmp_path_factory.mktemp("changed") / "t.lance"))

    def clock(batch: pa.RecordBatch) -> pa.Array:
        return pa.array(range(batch.num_rows), pa.int64()).cast(pa.timestamp("s"))

    dataset = open_dataset(str(path)).add_columns({"clock": clock}, batch_size=1_500)
    dataset = dataset.alter_columns({"path": "clock", "data_type": pa.timestamp("ns")})
    table = LanceTable.forPath(spark, str(path))
    table.update("id % 2 = 1", {"value": "value / 2"}, mode="columns")
    table.delete("id between 200 and 300 or value between 0.5 and 0.6")
    lance.dataset(path).create_scalar_index("value", "ZONEMAP")
    return path


@pytest.mark.parametrize("name", SCANS)
def test_scans_return_rows_in_order(spark: Any, changed_table: Path, name: str) -> None:
    reader = spark.read.format("lance").option("target_rows_per_partition", 300)
    frame = SCANS[name](reader.load(str(changed_table))).select("id", "word")
    assert (order_in(frame) or "").startswith("id ASC")
    rows = [(-1 if row.id is None else row.id, row.word) for row in frame.collect()]
    assert len(rows) > 20
    # One partition after the other, and within each of them by both columns.
    assert rows == sorted(rows)


@pytest.mark.parametrize("setting", ["spark.lance.columnar.enabled", "spark.lance.pushdown.arrays"])
def test_rows_and_packed_arrays(spark: Any, path: Path, setting: str) -> None:
    def items(batch: pa.RecordBatch) -> pa.Array:
        return pa.array([[value] for value in batch["id"].to_pylist()], pa.list_(pa.int32()))

    open_dataset(str(path)).add_columns({"items": items})
    rows = spark.read.format("lance").load(str(path)).sortWithinPartitions("id")
    stored = open_dataset(str(path)).to_table(["id", "items"]).to_pylist()
    expected = [(row["id"], row["items"]) for row in stored]
    for value in ("true", "false"):
        spark.conf.set(setting, value)
        try:
            frame = rows.select("id", "items")
            assert order_in(frame) == "id ASC"
            assert "Sort [" not in plan_of(frame)
            assert [tuple(row) for row in frame.collect()] == expected
        finally:
            spark.conf.unset(setting)


def test_a_procedure_records_the_order(spark: Any, path: Path) -> None:
    lance.write_dataset(ADDED, path, mode="append")
    spark.sql(f"CALL lance.system.optimize(table => '{path}', sort_by => array('Word', 'id'))")
    assert reported(open_dataset(str(path))) == ["word", "id"]


def test_only_columns_as_they_were_sorted(spark: Any, path: Path) -> None:
    def shown(schema: str, **options: str) -> str | None:
        reader = spark.read.format("lance").schema(schema).options(**options)
        return order_in(reader.load(str(path)))

    assert shown("word string, id int") == "id ASC, word ASC"
    assert shown("ID int, value double") == "ID ASC"
    assert shown("id long, word string") is None
    assert shown("value double, word string") is None
    assert shown("id int", version="1") is None
    assert shown("id int, value double", filter="value > 0.3") == "id ASC"
    lance.dataset(path).alter_columns({"path": "word", "name": "Id"})
    # Spark would not know which column is meant.
    case = "spark.sql.caseSensitive"
    spark.conf.set(case, "true")
    try:
        assert shown("id int, Id string") is None
    finally:
        spark.conf.unset(case)


def test_a_name_with_any_characters(spark: Any, path: Path) -> None:
    name = "a:b,;% +`é"
    lance.dataset(path).alter_columns({"path": "id", "name": name})
    rows = spark.read.format("lance").load(str(path)).sortWithinPartitions(sf.col("`a:b,;% +``é`"))
    assert order_in(rows) == "`a:b,;% +``é` ASC, word ASC"
    assert "Sort [" not in plan_of(rows)


@pytest.mark.parametrize(
    "value", ["", "1", "[]", "{}", '{"columns": 1}', '{"columns": [{"field": []}]}', "[" * 10_000]
)
def test_other_values_of_the_configuration(path: Path, value: str) -> None:
    lance.dataset(path).update_config({KEY: value})
    assert recorded(path) == ()


def test_sorts_that_are_not_recorded(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    table.optimize(sortBy=[sf.col("id") % 7, sf.col("id")])
    assert recorded(path) == ()
    table.optimize(sortBy=["id", sf.upper("word"), "value"], target_rows_per_fragment=1_000)
    assert recorded(path) == (0,)
    table.optimize(zOrderBy=["id", "value"], target_rows_per_fragment=1_000)
    assert recorded(path) == ()
    table.optimize(where="id is null", sortBy="id")
    assert recorded(path) == ()
    lance.dataset(path).create_scalar_index("id", "BITMAP")
    lance.write_dataset(ADDED, path, mode="append")
    # Fragments with and without the index are sorted alone.
    table.optimize(sortBy="id")
    assert recorded(path) == ()


def test_rows_that_another_client_appends_meanwhile(
    spark: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = sort.commit_reordered

    def late(*arguments: Any) -> Any:
        lance.write_dataset(ADDED, path, mode="append")
        return commit(*arguments)

    monkeypatch.setattr(sort, "commit_reordered", late)
    LanceTable.forPath(spark, str(path)).optimize(sortBy="word")
    assert len(lance.dataset(path).get_fragments()) == 2
    assert recorded(path) == ()


ADDED = pa.table({"id": pa.array([7, None], pa.int32()), "word": ["w", "x"], "value": [0.1, 0.2]})


def recorded(path: Path | Dataset) -> tuple[int, ...]:
    """Return the ids of the columns by which the newest version is sorted."""
    dataset = path if isinstance(path, Dataset) else open_dataset(str(path))
    return tuple(column.field for column in order_of(dataset._table.manifest.message))


def reported(dataset: Dataset) -> list[str]:
    """Return the columns by which a scan of all columns is reported to be sorted."""
    table = dataset._table
    wanted = to_spark_schema(dataset.schema)
    order = reported_order(table.manifest.message, table.schema.fields, wanted)
    return [".".join(item.path) for item in order]


def is_in_order(dataset: Dataset, name: str) -> bool:
    values = dataset.to_table([name])[name].fill_null(-1)
    return bool(values.equals(values.take(pc.sort_indices(values))))


def _merge(dataset: lance.LanceDataset) -> None:
    builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    builder.execute(ADDED)


def _update_column(left: str, column: str) -> Callable[[lance.LanceDataset], None]:
    """Update a column in place: the fragment keeps its id, and gets one more file."""

    def change(dataset: lance.LanceDataset) -> None:
        fragment = dataset.get_fragments()[1]
        rows = fragment.to_table(columns=[left, column]).slice(100, 5)
        first = pa.array([rows[column][0].as_py()] * 5, rows[column].type)
        source = rows.set_column(1, column, pc.multiply(first, pa.scalar(2, first.type)))
        updated, fields = fragment.update_columns(source, left_on=left)
        operation = lance.LanceOperation.Update(
            [], [updated], [], fields, update_mode="rewrite_columns"
        )
        _commit(dataset, operation)

    return change


def _commit(dataset: lance.LanceDataset, operation: Any) -> None:
    lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


def _replace_data(dataset: lance.LanceDataset) -> None:
    """Replace the file of a fragment by one with its rows in another order."""
    fragment = dataset.get_fragments()[1]
    rows = fragment.to_table()
    (written,) = lance.fragment.write_fragments(
        rows.take(np.arange(len(rows))[::-1]), dataset.uri, schema=dataset.schema
    )
    group = lance.LanceOperation.DataReplacementGroup(fragment.fragment_id, written.files[0])
    _commit(dataset, lance.LanceOperation.DataReplacement([group]))


def _overlay(column: str, field: int) -> Callable[[lance.LanceDataset], None]:
    def change(dataset: lance.LanceDataset) -> None:
        number = dataset.get_fragments()[1].fragment_id
        values = pa.array([99_999], pa.int32()) if field == 0 else pa.array([0.5])
        file = column_file(dataset, column, values, field)
        overlay = lance.LanceOperation.DataOverlayFile(file, [10])
        group = lance.LanceOperation.DataOverlayGroup(number, [overlay])
        _commit(dataset, lance.LanceOperation.DataOverlay([group]))

    return change


def _reversed(dataset: lance.LanceDataset) -> None:
    fragments = [fragment.metadata for fragment in dataset.get_fragments()][::-1]
    _commit(dataset, lance.LanceOperation.Overwrite(dataset.schema, fragments))


def _restore(version: int) -> Callable[[lance.LanceDataset], None]:
    return lambda dataset: lance.dataset(dataset.uri, version=version).restore()


def _add_again(dataset: lance.LanceDataset) -> None:
    dataset.drop_columns(["id"])
    dataset.add_columns({"id": "cast(value * 1000 as int)"})


#: Changes by pylance, and whether the version is known to be sorted by `id` afterwards.
PYLANCE: dict[str, tuple[Callable[[lance.LanceDataset], Any], bool]] = {
    "append": (lambda d: lance.write_dataset(ADDED, d.uri, mode="append"), False),
    "update": (lambda d: d.update({"id": "id + 1000"}, where="value < 0.1"), False),
    "update another column": (lambda d: d.update({"value": "0.5"}, where="id = 5"), False),
    "merge": (_merge, False),
    "update in place": (_update_column("value", "id"), False),
    "update another column in place": (_update_column("id", "value"), True),
    "delete": (lambda d: d.delete("value < 0.2"), True),
    "delete a fragment": (lambda d: d.delete("id is null or id < 900"), False),
    "compact": (lambda d: d.optimize.compact_files(), False),
    "add a column": (lambda d: d.add_columns({"more": "value * 2"}), True),
    "rename": (lambda d: d.alter_columns({"path": "id", "name": "key"}), True),
    "another type": (lambda d: d.alter_columns({"path": "id", "data_type": pa.int64()}), False),
    "drop another column": (lambda d: d.drop_columns(["value"]), True),
    "drop the column": (lambda d: d.drop_columns(["id"]), False),
    "drop the column and add it again": (_add_again, False),
    "overwrite": (lambda d: lance.write_dataset(ADDED, d.uri, mode="overwrite"), False),
    "restore the unsorted version": (_restore(1), False),
    "restore the sorted version": (
        lambda d: (_restore(1)(d), _restore(3)(d)),
        True,
    ),
    "set a configuration": (lambda d: d.update_config({"a": "b"}), True),
    "replace data": (_replace_data, False),
    "overlay": (_overlay("id", 0), False),
    "overlay of another column": (_overlay("value", 2), True),
    "other fragment order": (_reversed, False),
    "index": (lambda d: d.create_scalar_index("id", "BTREE"), True),
}


@pytest.mark.parametrize("name", PYLANCE)
def test_changes_by_pylance(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without this variable, pylance refuses such tables, because they are experimental.
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    change, stays = PYLANCE[name]
    before = lance.dataset(path).config()
    change(lance.dataset(path))
    check(path, stays)
    if name not in ("restore the unsorted version", "overwrite", "set a configuration"):
        assert lance.dataset(path).config() == before


def check(path: Path, stays: bool) -> None:
    dataset = open_dataset(str(path))
    lance.dataset(path).validate()
    order = reported(dataset)
    assert bool(order) == stays
    if order:
        assert order[0] in ("id", "key")
        assert is_in_order(dataset, order[0])


def _copy(method: str, stays: bool) -> tuple[Callable[[Any, Path], Any], bool]:
    def change(_: Any, path: Path) -> Any:
        dataset = open_dataset(str(path))
        target = path.with_name("copy.lance")
        if method == "branch":
            return dataset.create_branch("side")
        return getattr(dataset, method)(str(target))

    return change, stays


#: Changes by this package, as in `PYLANCE`. A change that returns a dataset is checked there.
OWN: dict[str, tuple[Callable[[Any, Path], Any], bool]] = {
    "append": (
        lambda t, p: t.toDF().limit(3).write.format("lance").mode("append").save(str(p)),
        False,
    ),
    "delete": (lambda t, p: t.delete("value < 0.2"), True),
    "delete fragments": (lambda t, p: t.delete("id is null or id < 400 or id > 1300"), True),
    "delete all rows": (lambda t, p: t.delete("true"), True),
    "update": (lambda t, p: t.update("id % 7 = 1", {"id": "id + 5"}, mode="rows"), False),
    "update in place": (lambda t, p: t.update("value < 0.1", {"id": "5"}, mode="columns"), False),
    "update of others in place": (
        lambda t, p: t.update("id % 2 = 1", {"value": "5"}, mode="columns"),
        True,
    ),
    "merge": (
        lambda t, p: (
            t.alias("t")
            .merge(t.toDF().where("id = 7").limit(1).alias("s"), "t.id = s.id + 1")
            .whenMatchedUpdate(set={"value": "s.value"})
            .whenNotMatchedInsertAll()
            .execute()
        ),
        False,
    ),
    "replace rows": (lambda t, p: t.replaceWhere(t.toDF().where("id = 5"), "id = 5"), False),
    "add a column": (lambda t, p: t.addColumns({"more": "value * 2"}), True),
    "rename": (lambda t, p: t.renameColumn("id", "key"), True),
    "another type": (lambda t, p: t.alterColumn("id", dataType="long"), False),
    "drop": (lambda t, p: t.dropColumns("id"), False),
    "reorder columns": (lambda t, p: t.reorderColumns("value", "word", "id"), True),
    "compact": (lambda t, p: t.optimize(), False),
    "restore": (lambda t, p: (t.delete("id < 9"), t.restoreToVersion(3)), True),
    "restore the unsorted version": (lambda t, p: t.restoreToVersion(1), False),
    "branch": _copy("branch", True),
    "shallow clone": _copy("shallow_clone", True),
    "deep clone": _copy("deep_clone", True),
}


@pytest.mark.parametrize("name", OWN)
def test_changes_by_this_package(spark: Any, path: Path, name: str) -> None:
    change, stays = OWN[name]
    result = change(LanceTable.forPath(spark, str(path)), path)
    dataset = result if isinstance(result, Dataset) else open_dataset(str(path))
    order = reported(dataset)
    assert bool(order) == stays
    if name == "delete fragments":
        assert 0 < len(dataset.fragments) < 4
    if order:
        assert is_in_order(dataset, order[0])
