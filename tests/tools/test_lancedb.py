"""LanceDB and Spark on the tables of one folder: both write, index, change, compact and search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lance_spark

lancedb = pytest.importorskip("lancedb")

ROWS, DIMENSION = 400, 16
VECTORS = np.random.default_rng(1).standard_normal((ROWS + 200, DIMENSION)).astype(np.float32)
WORDS = ("apple", "birch", "cedar", "dogwood", "elm")
SCALAR_INDEXES = {"id": "BTREE", "kind": "BITMAP", "tags": "LABEL_LIST"}
VECTOR_INDEXES = ("IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_SQ", "IVF_HNSW_PQ")
STABLE = {"new_table_enable_stable_row_ids": "true"}


def rows(numbers: range, kind: str | None = None) -> pa.Table:
    vectors = VECTORS[numbers.start : numbers.stop].reshape(-1)
    return pa.table(
        {
            "id": numbers,
            "kind": [kind or f"k{n % 7}" for n in numbers],
            "tags": [[f"t{n % 3}", f"u{n % 5}"] for n in numbers],
            "text": [f"{WORDS[n % 5]} tree {n}" for n in numbers],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIMENSION),
        }
    )


def index_by_lancedb(table: Any, vector_index: str = "IVF_PQ") -> None:
    for column, index_type in SCALAR_INDEXES.items():
        table.create_scalar_index(column, index_type=index_type)
    table.create_fts_index("text", use_tantivy=False)
    parts = {"num_sub_vectors": 4} if "PQ" in vector_index else {}
    table.create_index(
        vector_column_name="vector", index_type=vector_index, num_partitions=2, **parts
    )


def index_by_spark(spark: Any, name: str, vector_index: str = "IVF_PQ") -> None:
    for column, index_type in {**SCALAR_INDEXES, "text": "INVERTED"}.items():
        spark.sql(f"ALTER TABLE {name} CREATE INDEX {column}_idx USING {index_type} ({column})")
    options = "num_partitions = 2, num_sub_vectors = 4" if "PQ" in vector_index else ""
    options = options or "num_partitions = 2"
    spark.sql(
        f"ALTER TABLE {name} CREATE INDEX vector_idx USING {vector_index} (vector) WITH ({options})"
    )


def check(database: Any, name: str, expected: dict[int, str]) -> None:
    """Compare the answers of LanceDB and of this package with the kind of each row."""
    table = database.open_table(name)
    dataset = lance_spark.open_dataset(Path(str(database.uri)) / f"{name}.lance")
    for found in (table.to_arrow(), dataset.to_table()):
        pairs = zip(found["id"].to_pylist(), found["kind"].to_pylist(), strict=True)
        assert dict(pairs) == expected
        assert found.num_rows == len(expected)
    conditions = {
        "id >= 60 AND id < 90": {n for n in expected if 60 <= n < 90},
        "kind = 'new'": {n for n, kind in expected.items() if kind == "new"},
        "kind = 'k3'": {n for n, kind in expected.items() if kind == "k3"},
        "array_has_any(tags, ['u4'])": {n for n in expected if n % 5 == 4},
    }
    for condition, ids in conditions.items():
        found = table.search().where(condition).limit(10_000).to_arrow()["id"].to_pylist()
        assert sorted(found) == sorted(ids), condition
        found = dataset.to_table(["id"], condition)["id"].to_pylist()
        assert sorted(found) == sorted(ids), condition
    ids = sorted(n for n in expected if n % 5 == 2)
    found = table.search("cedar", query_type="fts").limit(10_000).to_arrow()["id"].to_pylist()
    assert sorted(found) == ids
    query = {"columns": ["text"], "query": "cedar"}
    found = dataset.to_table(["id"], full_text_query=query, limit=10_000)["id"].to_pylist()
    assert sorted(found) == ids
    query_vector = VECTORS[70] + np.float32(0.1)
    distances = {n: float(((VECTORS[n] - query_vector) ** 2).sum()) for n in expected}
    nearest = sorted(expected, key=distances.__getitem__)[:5]
    search = table.search(query_vector, vector_column_name="vector").limit(5)
    search = search.nprobes(2).refine_factor(200).ef(2000)
    assert search.to_arrow()["id"].to_pylist() == nearest
    options = {"column": "vector", "q": query_vector, "k": 5, "nprobes": 2, "refine_factor": 200}
    found = dataset.to_table(["id"], nearest={**options, "ef": 2000})["id"].to_pylist()
    assert found == nearest


def kinds(table: pa.Table) -> dict[int, str]:
    return dict(zip(table["id"].to_pylist(), table["kind"].to_pylist(), strict=True))


@pytest.fixture(scope="module")
def database(spark: Any, folder: Path) -> Any:
    return lancedb.connect(str(folder / "lake"))


@pytest.mark.parametrize("stable", [False, True], ids=["row addresses", "stable row ids"])
def test_spark_changes_what_lancedb_writes(spark: Any, database: Any, stable: bool) -> None:
    """SQL changes, merges into and compacts tables that LanceDB writes and indexes, and both find
    all rows by filters, texts and vectors, also after `optimize()` of LanceDB.
    """
    name = f"theirs_{stable}"
    options = STABLE if stable else None
    table = database.create_table(name, rows(range(ROWS)), storage_options=options)
    index_by_lancedb(table)
    expected = kinds(rows(range(ROWS)))
    spark.createDataFrame(
        rows(range(380, 420), "new").to_pylist(),
        "id long, kind string, tags array<string>, text string, vector array<float>",
    ).createOrReplaceTempView("source")
    spark.sql(
        f"MERGE INTO lance.{name} t USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    expected |= dict.fromkeys(range(380, 420), "new")
    spark.sql(f"UPDATE lance.{name} SET kind = 'new' WHERE id BETWEEN 60 AND 65")
    expected |= dict.fromkeys(range(60, 66), "new")
    spark.sql(f"DELETE FROM lance.{name} WHERE id < 40 OR id = 300")
    expected = {n: kind for n, kind in expected.items() if n >= 40 and n != 300}
    check(database, name, expected)
    spark.sql(f"OPTIMIZE lance.{name}")
    check(database, name, expected)
    database.open_table(name).delete("id >= 100 AND id < 130")
    expected = {n: kind for n, kind in expected.items() if not 100 <= n < 130}
    try:
        database.open_table(name).optimize()
    except RuntimeError as error:
        # Without changes of Spark, too.
        if not stable or "chunk.len()" not in str(error):
            raise
        pytest.xfail(
            "`optimize()` of this release fails if a table with stable row ids has a vector index; "
            "`OPTIMIZE` of Spark works"
        )
    check(database, name, expected)
    spark.sql(f"ALTER TABLE lance.{name} OPTIMIZE INDEX id_idx")
    spark.sql(f"ALTER TABLE lance.{name} ADD COLUMN note STRING")
    check(database, name, expected)


@pytest.mark.parametrize("stable", [False, True], ids=["row addresses", "stable row ids"])
def test_lancedb_changes_what_spark_writes(spark: Any, database: Any, stable: bool) -> None:
    """LanceDB appends to, updates, merges into and compacts tables that Spark writes and indexes,
    and both find all rows.
    """
    name = f"ours_{stable}"
    frame = spark.createDataFrame(
        rows(range(ROWS)).to_pylist(),
        "id long, kind string, tags array<string>, text string, vector array<float>",
    )
    writer = frame.writeTo(f"lance.{name}").using("lance")
    writer = writer.tableProperty("vector.arrow.fixed-size-list.size", str(DIMENSION))
    writer.option("enable_stable_row_ids", str(stable).lower()).create()
    index_by_spark(spark, f"lance.{name}")
    expected = kinds(rows(range(ROWS)))
    table = database.open_table(name)
    table.add(rows(range(400, 410)))
    expected |= kinds(rows(range(400, 410)))
    table.update(where="id >= 60 AND id < 66", values={"kind": "new"})
    expected |= dict.fromkeys(range(60, 66), "new")
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows(range(405, 420), "new"))
    expected |= dict.fromkeys(range(405, 420), "new")
    table.delete("id < 40")
    expected = {n: kind for n, kind in expected.items() if n >= 40}
    check(database, name, expected)
    table.optimize()
    check(database, name, expected)
    spark.sql(f"DELETE FROM lance.{name} WHERE id = 50")
    del expected[50]
    spark.sql(f"OPTIMIZE lance.{name}")
    check(database, name, expected)
    found = spark.sql(f"SELECT count(*) FROM lance.{name} WHERE kind = 'new'").head()[0]
    assert found == sum(kind == "new" for kind in expected.values())


@pytest.mark.parametrize("vector_index", VECTOR_INDEXES)
def test_vector_indexes_of_both(spark: Any, database: Any, vector_index: str) -> None:
    """Each type of vector index that LanceDB makes is used by Spark, and the reverse, also after
    changes and compactions of both.
    """
    for maker in ("lancedb", "spark"):
        name = f"{maker}_{vector_index.lower()}"
        table = database.create_table(name, rows(range(ROWS)))
        if maker == "lancedb":
            index_by_lancedb(table, vector_index)
        else:
            index_by_spark(spark, f"lance.{name}", vector_index)
        dataset = lance_spark.open_dataset(Path(database.uri) / f"{name}.lance")
        nearest = {"column": "vector", "q": VECTORS[0], "k": 5}
        assert "index: vector_idx" in dataset.explain(nearest=nearest)
        dataset.delete("id < 20").compact_files()
        table = database.open_table(name)
        table.delete("id >= 30 AND id < 50")
        table.optimize()
        left = kinds(rows(range(20, 30))) | kinds(rows(range(50, ROWS)))
        check(database, name, left)


def test_fm_index(database: Any) -> None:
    """An `FM` index of LanceDB stays right when Spark changes and compacts the table; Spark does not
    use it.
    """
    index = pytest.importorskip("lancedb.index")
    if not hasattr(index, "Fm"):
        pytest.xfail("this release makes no such index")
    for stable in (False, True):
        options = STABLE if stable else None
        name = f"fm_{stable}"
        table = database.create_table(name, rows(range(ROWS)), storage_options=options)
        table.create_index("text", config=index.Fm())
        table.create_scalar_index("id")
        dataset = lance_spark.open_dataset(Path(database.uri) / f"{name}.lance")
        dataset = dataset.update({"kind": "new"}, "id = 5")
        dataset.delete("id = 7").compact_files()
        database.open_table(name).optimize()
        found = database.open_table(name).count_rows("contains(text, 'birch tr')")
        assert found == ROWS // 5


def test_namespaces(spark: Any, database: Any) -> None:
    """The folder of a catalog is a database of LanceDB: `connect(ROOT)` opens the table `lance.t` as
    `open_table("t")`, and `lance.air.t` as `open_table("t", namespace_path=["air"])`.
    """
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lance.air")
    spark.sql("CREATE TABLE lance.air.late AS SELECT id, id % 3 AS n FROM range(10)")
    spark.sql("CREATE TABLE lance.plain AS SELECT id FROM range(5)")
    assert database.open_table("plain").count_rows() == 5
    try:
        table = database.open_table("late", namespace_path=["air"])
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        pytest.xfail('tables of a namespace open by `lancedb.connect_namespace("dir", ...)` only')
    assert table.count_rows("n = 1") == 3
    table.add(pa.table({"id": [10], "n": [1]}))
    assert spark.table("lance.air.late").where("n = 1").count() == 4
    database.create_table("theirs", pa.table({"id": [1, 2]}), namespace_path=["air"])
    assert spark.table("lance.air.theirs").count() == 2


def test_tags_and_versions(spark: Any, database: Any) -> None:
    """Tags of LanceDB are versions in SQL, and the reverse."""
    table = database.create_table("tagged", pa.table({"id": [1, 2]}))
    table.tags.create("first", table.version)
    table.add(pa.table({"id": [3]}))
    query = "SELECT count(*) FROM lance.tagged VERSION AS OF"
    assert spark.sql(f"{query} 'first'").head()[0] == 2
    spark.sql("ALTER TABLE lance.tagged CREATE TAG second AS OF VERSION 2")
    spark.sql("DELETE FROM lance.tagged WHERE id = 1")
    table = database.open_table("tagged")
    table.checkout("second")
    assert table.count_rows() == 3
    table.restore()
    assert spark.table("lance.tagged").count() == 3


def test_vectors_that_are_null(spark: Any, database: Any) -> None:
    """Vectors that are null: LanceDB takes them with `on_bad_vectors="null"`, and keeps those that
    Spark writes.
    """
    vectors = pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))
    data = pa.table({"id": [1, 2], "vector": vectors})
    table = database.create_table("nulls", data, on_bad_vectors="null")
    spark.sql("INSERT INTO lance.nulls VALUES (3, NULL), (4, array(1.0F, 3.0F))")
    spark.sql("UPDATE lance.nulls SET vector = NULL WHERE id = 1")
    table = database.open_table("nulls")
    found = table.search([1.0, 3.0], vector_column_name="vector").limit(5).to_arrow()
    assert found["id"].to_pylist() == [4]
    assert table.count_rows("vector IS NULL") == 3
