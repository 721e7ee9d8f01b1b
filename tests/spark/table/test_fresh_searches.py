"""Searches of rows of a MemWAL in Spark: the rows that `Dataset.fresh` finds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import Dataset, FreshRows
from lance_spark.errors import InvalidInputError
from lance_spark.spark.table import LanceTable
from tests.interop.mem_wal.shards import key_field
from tests.spark.sql.catalogs import TestCatalog
from tests.spark.table.test_nearest import DIMENSION, IN_TASKS, column, vectors

pytestmark = pytest.mark.usefixtures("pushed")

SCHEMA = pa.schema(
    [
        key_field("id", pa.int64()),
        pa.field("g", pa.int64()),
        pa.field("t", pa.string()),
        pa.field("v", pa.list_(pa.float32(), DIMENSION)),
    ]
)
Q = vectors(40, 1)[0]


def rows_of(ids: list[int], seed: int) -> pa.Table:
    texts = [f"fox {'dog ' * ((number + seed) % 5)} tree {number % 7}" for number in ids]
    groups = [number % 4 for number in ids]
    return pa.table([ids, groups, texts, column(vectors(seed, len(ids)))], schema=SCHEMA)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("fresh_searches") / "t.lance")
    dataset = lance.write_dataset(rows_of(list(range(600)), 41), path, max_rows_per_file=150)
    dataset.create_index("v", "IVF_FLAT", num_partitions=4)
    dataset.create_scalar_index("t", "INVERTED")
    dataset = lance.write_dataset(rows_of(list(range(600, 650)), 42), path, mode="append")
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=2)
    opened = lance_spark.open_dataset(path)
    for seed, is_flushed in ((43, True), (44, False)):
        rows = rows_of([*range(0, 300, seed - 40), 700 + seed], seed)
        for shard_id, part in opened.split_by_shard(rows).items():
            writer = opened.mem_wal_writer(shard_id)
            writer.put(part)
            writer.delete(part.slice(5, 3))
            writer.close(flush=is_flushed)
    return path


@pytest.fixture
def fresh(path: str) -> FreshRows:
    dataset: Dataset = lance_spark.open_dataset(path)
    return dataset.fresh()


def pairs(rows: Any, name: str) -> list[tuple[int, float]]:
    if isinstance(rows, pa.Table):
        rows = zip(rows["id"].to_pylist(), rows[name].to_pylist(), strict=True)
    return [(key, round(value, 4)) for key, value in rows]


@pytest.mark.parametrize("options", [{}, IN_TASKS], ids=["driver", "tasks"])
def test_nearest(spark: Any, path: str, fresh: FreshRows, options: dict[str, Any]) -> None:
    table = LanceTable.forPath(spark, path)
    nearest = {"column": "v", "q": Q, "k": 12, "nprobes": 4}
    for condition in (None, "id IN (0, 3, 8, 743, 601)"):
        frame = table.nearest(
            "v", Q, 12, nprobes=4, columns=["id"], filter=condition, fresh=True, **options
        )
        assert frame.columns == ["id", "_distance"]
        wanted = fresh.to_table(["id"], nearest=nearest, filter=condition, prefilter=True)
        rows = pairs(frame.collect(), "_distance")
        assert rows == pairs(wanted, "_distance"), condition
    after = table.nearest(
        "v",
        Q,
        12,
        nprobes=4,
        columns=["id", "g"],
        filter="g < 2",
        prefilter=False,
        fresh=True,
        **options,
    )
    wanted = fresh.to_table(["id"], nearest=nearest, filter="g < 2")
    assert [row.id for row in after.collect()] == wanted["id"].to_pylist()
    batch = table.nearest("v", [Q, Q + 1], 3, nprobes=4, columns=["id"], fresh=True, **options)
    wanted = fresh.to_table(["id"], nearest={**nearest, "q": [Q, Q + 1], "k": 3})
    assert [tuple(row)[:2] for row in batch.collect()] == [
        *zip(wanted["query_index"].to_pylist(), wanted["id"].to_pylist(), strict=True)
    ]
    assert table.nearest("v", Q, 12, fresh=True, **options).count() == 12


@pytest.mark.parametrize(
    "options",
    [{}, {"driver_read_bytes": 0, "target_rows_per_partition": 1}],
    ids=["driver", "tasks"],
)
def test_search(spark: Any, path: str, fresh: FreshRows, options: dict[str, Any]) -> None:
    table = LanceTable.forPath(spark, path)
    for condition in ("g < 2", None):
        frame = table.search("dog", ["id"], filter=condition, fresh=True, **options)
        assert frame.columns == ["id", "_score"]
        wanted = fresh.to_table(["id"], full_text_query="dog", filter=condition)
        rows = sorted(pairs(frame.collect(), "_score"))
        assert rows == sorted(pairs(wanted, "_score"))
        best = table.search("dog", ["id"], limit=7, filter=condition, fresh=True, **options)
        assert [value for _, value in pairs(best.collect(), "_score")] == [
            value for _, value in pairs(wanted, "_score")
        ][:7]
        kept = frame.where("id % 2 = 1")
        assert sorted(pairs(kept.collect(), "_score")) == [pair for pair in rows if pair[0] % 2]
    assert frame.count() == len(rows)
    assert (
        table.search("dog", fresh=True, **options).where("g = 1").count()
        == fresh.to_table(["id"], full_text_query="dog", filter="g = 1").num_rows
    )


def test_options_and_explain(spark: Any, path: str, fresh: FreshRows) -> None:
    options = {"fresh": "true", "nearest": f'{{"column": "v", "q": {Q.tolist()}, "k": 5}}'}
    frame = spark.read.format("lance").options(**options).load(path)
    nearest = {"column": "v", "q": Q, "k": 5}
    wanted = fresh.to_table(["id"], nearest=nearest)
    assert {row.id for row in frame.collect()} == set(wanted["id"].to_pylist())
    plan = frame._jdf.queryExecution().toString()
    assert "fresh=[2 SSTables, 4 WAL entries]" in plan
    text = spark.read.format("lance").options(fresh="true", full_text_query="tree").load(path)
    assert text.count() == fresh.count_rows()


def test_sql(spark: Any, path: str, fresh: FreshRows, tmp_path: Path) -> None:
    catalog = TestCatalog.of(spark, "fresh_searches", tmp_path)
    shutil.copytree(path, catalog.root / "t.lance")
    vector = "array(" + ", ".join(f"{item:.6f}" for item in Q) + ")"
    rows = catalog.sql(
        f"SELECT id FROM lance_vector_search('fresh_searches.t', {vector}, 6, "
        "vector_column => 'v', fresh => true, columns => array('id'))"
    )
    wanted = fresh.to_table(["id"], nearest={"column": "v", "q": Q, "k": 6})
    assert [row.id for row in rows] == wanted["id"].to_pylist()
    rows = catalog.sql(
        "SELECT * FROM lance_search('fresh_searches.t', 'dog', NULL, fresh => true, "
        "columns => array('id'))"
    )
    assert rows[0].asDict().keys() == {"id", "_score"}
    wanted = fresh.to_table(["id"], full_text_query="dog")
    assert sorted(row.id for row in rows) == sorted(wanted["id"].to_pylist())


def test_what_is_refused(spark: Any, path: str) -> None:
    table = LanceTable.forPath(spark, path)
    with pytest.raises(Exception, match="_rowid cannot be used in a fresh read"):
        table.nearest("v", Q, fresh=True, with_row_id=True).collect()
    with pytest.raises(InvalidInputError, match="hybridSearch finds rows by their addresses"):
        table.hybridSearch("dog", Q, column="v", fresh=True)
    with pytest.raises(Exception, match="options fresh and version exclude each other"):
        table.search("dog", fresh=True, version=1).collect()
