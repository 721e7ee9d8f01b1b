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
#: The key has a string and a child of a struct.
DISTINCT = pa.schema(
    [
        key_field("name", pa.string()),
        pa.field(
            "part",
            pa.struct([key_field("n", pa.int64()), pa.field("g", pa.int64())]),
            nullable=False,
        ),
        pa.field("t", pa.string()),
        SCHEMA.field("v"),
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


def distinct_rows(numbers: list[int], seed: int) -> pa.Table:
    """Return rows whose texts have different scores, with a key of two columns."""
    texts = ["dog " * (1 + (n + seed) % 7) + "cat " * (1 + (n + seed) // 7) for n in numbers]
    keys = [[f"k{n}" for n in numbers], [{"n": n, "g": n % 4} for n in numbers]]
    return pa.table([*keys, texts, column(vectors(seed, len(numbers)))], schema=DISTINCT)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return a table with rows in its MemWAL, and a copy that has them in the table."""
    path = str(tmp_path_factory.mktemp("hybrid") / "t.lance")
    dataset = lance.write_dataset(distinct_rows(list(range(120)), 51), path, max_rows_per_file=50)
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    dataset.create_scalar_index("t", "INVERTED", with_position=True)
    # pylance refuses a key that is a child of a struct.
    opened = lance_spark.open_dataset(path).initialize_mem_wal(unsharded=True)
    (shard_id,) = opened.split_by_shard(distinct_rows([0], 0))
    for seed, is_flushed in ((380, True), (720, False)):
        writer = opened.mem_wal_writer(shard_id)
        writer.put(distinct_rows([*range(0, 100, seed // 80), seed], seed))
        writer.delete(distinct_rows([1, 2, 10], seed))
        writer.close(flush=is_flushed)
    compacted = path.replace("t.lance", "compacted.lance")
    shutil.copytree(path, compacted)
    lance_spark.open_dataset(compacted).compact_mem_wal(flush=True)
    return path, compacted


def hybrid_rows(frame: Any) -> list[tuple[Any, ...]]:
    names = ("_distance", "_score", "_relevance_score")
    assert frame.columns[-3:] == [*names]
    rows = [(row[0], *(row[name] for name in names)) for row in frame.collect()]
    assert len({row[0] for row in rows}) == len(rows)
    return [
        (row[0], *(None if value is None else round(value, 4) for value in row[1:])) for row in rows
    ]


@pytest.mark.parametrize("options", [{}, IN_TASKS], ids=["driver", "tasks"])
def test_hybrid(spark: Any, both: tuple[str, str], options: dict[str, Any]) -> None:
    fresh, compacted = (LanceTable.forPath(spark, path) for path in both)
    scores = [row._score for row in compacted.search("dog", ["name"]).collect()]
    assert len(set(scores)) == len(scores)

    def numbers(candidates: pa.Table) -> Any:
        return [part["n"] for part in candidates["part"].to_pylist()]

    for changes in (
        {},
        {"columns": ["name", "t"], "candidates": 60},
        {"columns": ["name", "_distance"], "reranker": "linear", "weight": 0.4},
        {"columns": ["name"], "filter": "part.g < 2"},
        {"filter": "part.g < 2", "prefilter": False},
        {"reranker": numbers},
        {"columns": ["name", "_rowaddr"], "fast_search": True},
    ):
        arguments = {"column": "v", "nearest": {"nprobes": 2}, **options, **changes}
        found = fresh.hybrid_search("dog", Q, 12, fresh=True, **arguments)
        wanted = compacted.hybrid_search("dog", Q, 12, **arguments)
        assert found.columns == wanted.columns, changes
        rows = hybrid_rows(found)
        if "fast_search" in changes:
            # After the compaction, no index covers rows of the MemWAL.
            assert any(row._rowaddr is None for row in found.collect())
            continue
        assert rows == hybrid_rows(wanted), changes
    address = fresh.hybrid_search("dog", Q, 90, column="v", fresh=True, with_row_address=True)
    seen = {row.name: row._rowaddr for row in address.collect()}
    plain = {row.name: row._rowaddr for row in fresh.toDF(with_row_address=True).collect()}
    assert seen["k720"] is None
    assert all(plain[name] == place for name, place in seen.items() if place is not None)
    assert None not in {seen.get(f"k{number}", 0) for number in (3, 5, 7)}


def test_hybrid_of_equal_keys(spark: Any, both: tuple[str, str], tmp_path: Path) -> None:
    """Rows of the table with one key, which it does not enforce, stay several rows."""
    path = str(tmp_path / "t.lance")
    shutil.copytree(both[0], path)
    twice = pa.concat_tables([distinct_rows([300], 60), distinct_rows([300], 61)])
    lance.write_dataset(twice, path, mode="append")
    table = LanceTable.forPath(spark, path)
    rows = table.hybrid_search("dog", Q, 200, column="v", columns=["name"], fresh=True).collect()
    assert sum(row.name == "k300" for row in rows) == 2
    assert len(rows) == lance_spark.open_dataset(path).fresh().count_rows()


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


def test_hybrid_in_sql(spark: Any, both: tuple[str, str], tmp_path: Path) -> None:
    catalog = TestCatalog.of(spark, "fresh_hybrid", tmp_path)
    for path in both:
        shutil.copytree(path, catalog.root / Path(path).name)
    vector = "array(" + ", ".join(f"{item:.6f}" for item in Q) + ")"
    for arguments in (
        "columns => array('name')",
        "columns => array('name', '_relevance_score'), candidates => 40, rrf_k => 3",
        "filter => 'part.n > 20', offset => 2",
        "filter => 'part.n > 20', prefilter => false, columns => array('name', 'part')",
    ):
        call = f"{{}}, {vector}, 'dog', 8, vector_column => 'v', nprobes => 2, {arguments}"
        found = f"SELECT * FROM lance_hybrid_search({call}, fresh => true)"
        rows = catalog.sql(found.format("'fresh_hybrid.t'"))
        wanted = catalog.sql(
            f"SELECT * FROM hybrid_search({call})".format("'fresh_hybrid.compacted'")
        )
        assert [row.name for row in rows] == [row.name for row in wanted], arguments
        assert [row.__fields__ for row in rows] == [row.__fields__ for row in wanted]
        for own, other in zip(rows, wanted, strict=True):
            assert own._relevance_score == pytest.approx(other._relevance_score, rel=1e-5)


def test_what_is_refused(spark: Any, path: str) -> None:
    table = LanceTable.forPath(spark, path)
    with pytest.raises(Exception, match="_rowid cannot be used in a fresh read"):
        table.nearest("v", Q, fresh=True, with_row_id=True).collect()
    with pytest.raises(Exception, match="options fresh and version exclude each other"):
        table.search("dog", fresh=True, version=1).collect()


def test_what_hybrid_searches_refuse(spark: Any, both: tuple[str, str], tmp_path: Path) -> None:
    table = LanceTable.forPath(spark, both[0])
    with pytest.raises(InvalidInputError, match="column 'part' has a column of the primary key"):
        table.hybrid_search("dog", Q, column="v", columns=["part.g"], fresh=True)
    plain = str(tmp_path / "plain.lance")
    lance.write_dataset(pa.table({"t": ["dog"], "v": column(vectors(1, 1))}), plain)
    with pytest.raises(InvalidInputError, match="a hybrid search with fresh rows matches rows by"):
        LanceTable.forPath(spark, plain).hybrid_search("dog", Q, column="v", fresh=True)
