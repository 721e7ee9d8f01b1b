"""Indexes of `LanceTable` and of SQL: created by tasks, asked by queries, read by pylance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, InvalidOptionError, UnsupportedTypeError
from lance_spark.spark.table import LanceTable
from tests.spark.sql.catalogs import TestCatalog

ROWS, FRAGMENTS = 60_000, 6


def rows(ids: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "word": pa.array([f"w{number % 7_001:04}" for number in ids.tolist()]),
            "g": pa.array(ids % 300, mask=ids % 11 == 0),
            "st": pa.StructArray.from_arrays([pa.array(ids * 3)], ["a"]),
            "list": pa.array([[number] for number in ids.tolist()]),
        }
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "t"
    rng = np.random.default_rng(5)
    data = rows(rng.permutation(ROWS))
    lance.write_dataset(data, str(path), max_rows_per_file=ROWS // FRAGMENTS)
    lance_spark.open_dataset(str(path)).delete("id % 17 = 3")
    return path


def test_a_check_has_a_task_for_each_segment(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    table.create_index("g", "bitmap", num_segments=3)
    assert [
        (row.is_valid, row.missing, row.wrong, row.stale) for row in checks(table, "g_idx")
    ] == [(True, 0, 0, 0)] * 3
    assert sum(row.num_rows for row in checks(table, "g_idx")) == count(path, "true")
    next(path.glob("_indices/*/*")).unlink()
    damaged = [row for row in checks(table, "g_idx") if not row.is_valid]
    assert [row.missing for row in damaged] == [row.num_rows for row in damaged]
    assert f"segment {damaged[0].segment}: cannot be read" in damaged[0].problems[0]
    with pytest.raises(InvalidInputError, match="index 'x' not found"):
        table.check_index("x")


def checks(table: LanceTable, name: str) -> list[Any]:
    rows: list[Any] = table.check_index(name).collect()
    return rows


def count(path: Path, text: str, **options: Any) -> int:
    return lance_spark.open_dataset(str(path)).to_table(["id"], filter=text, **options).num_rows


def test_an_index_is_made_by_tasks_and_used(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    version = table.create_index("id", "btree", num_segments=3).version
    table.create_index("word", "BTREE", "words")
    table.create_index("st.a", "BTREE")
    assert table.create_index("g", "bitmap").version == version + 3
    listed = {row.name: row for row in table.indexes().collect()}
    assert set(listed) == {"id_idx", "words", "st.a_idx", "g_idx"}
    assert listed["id_idx"].num_segments == 3
    assert listed["st.a_idx"].fields == ["st.a"]
    assert all(row.num_indexed_rows == count(path, "true") for row in listed.values())
    oracle = lance.dataset(str(path))
    frame = table.toDF()
    for text in ("id = 41", "word = 'w0007'", "st.a = 300", "g = 5 AND id < 3000", "g IS NULL"):
        assert "ScalarIndexQuery" in oracle.scanner(filter=text).explain_plan()
        expected = count(path, text, use_scalar_index=False)
        assert oracle.count_rows(text) == expected
        assert frame.where(text).count() == expected
        assert len(frame.where(text).collect()) == expected
    plain = table.toDF(use_scalar_index=False)
    assert plain.where("id = 41").count() == 1


def test_indexes_are_extended(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    table.create_index("id", "BTREE", num_segments=2)
    lance.dataset(str(path)).insert(rows(np.arange(ROWS, ROWS + 500)))

    def coverage() -> tuple[int, int, int]:
        (row,) = table.indexes().collect()
        return row.num_segments, row.num_indexed_fragments, row.num_unindexed_rows

    assert coverage() == (2, FRAGMENTS, 500)
    assert table.optimize_indices(num_indices_to_merge=0, num_segments=1).version == 5
    assert coverage() == (3, FRAGMENTS + 1, 0)
    # Nothing to do is no version.
    assert table.optimize_indices().version == 5
    lance.dataset(str(path)).insert(rows(np.arange(ROWS + 500, ROWS + 600)))
    table.optimize_indices(["id_idx"], num_segments=1)
    assert coverage() == (3, FRAGMENTS + 2, 0)
    # A task merges segments, though no rows are new.
    table.optimize_indices(num_indices_to_merge=2)
    assert coverage() == (2, FRAGMENTS + 2, 0)
    assert all(row.is_valid for row in checks(table, "id_idx"))
    lance.dataset(str(path)).insert(rows(np.arange(ROWS + 600, ROWS + 700)))
    table.optimize_indices(num_indices_to_merge=2)
    assert coverage() == (1, FRAGMENTS + 3, 0)
    assert all(row.is_valid for row in checks(table, "id_idx"))
    table.optimize_indices(retrain=True, num_segments=1)
    assert coverage() == (1, FRAGMENTS + 3, 0)
    for text in ("id = 60123", "id = 60555", "id BETWEEN 59990 AND 60010"):
        assert "ScalarIndexQuery" in lance.dataset(str(path)).scanner(filter=text).explain_plan()
        assert table.toDF().where(text).count() == count(path, text, use_scalar_index=False)
        assert lance.dataset(str(path)).count_rows(text) == table.toDF().where(text).count()
    table.drop_index("id_idx")
    assert table.indexes().count() == 0


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (("nope", "BTREE"), InvalidInputError, "'nope'"),
        (("id", "fm"), InvalidInputError, "index type 'fm' cannot be created"),
        (("list", "BTREE"), UnsupportedTypeError, "does not take column 'list'"),
        (("list.item", "BTREE"), InvalidInputError, "list.item"),
        (("id", "BTREE", "word_idx"), InvalidInputError, "exists on another column"),
        (("id", "BTREE", "__lance_frag_reuse"), InvalidInputError, "cannot have the name"),
    ],
)
def test_wrong_indexes_are_refused(
    spark: Any, path: Path, arguments: tuple[str, ...], error: type[Exception], says: str
) -> None:
    table = LanceTable.forPath(spark, str(path))
    version = table.create_index("word", "BTREE").version
    with pytest.raises(error, match=says):
        table.create_index(*arguments)
    with pytest.raises(InvalidOptionError, match="option 'pages' is unknown"):
        table.create_index("id", "BTREE", pages=3)
    with pytest.raises(InvalidInputError, match="'word_idx' exists; replace it"):
        table.create_index("word", "BTREE", replace=False)
    assert table.dataset().version == version


def test_statements(spark: Any, tmp_path: Path) -> None:
    catalog = TestCatalog.of(spark, "indexed", tmp_path)
    catalog.sql("CREATE TABLE CAT.t AS SELECT id, id % 7 AS g FROM range(0, 9000, 1, 3)")
    created = catalog.sql(
        "ALTER TABLE CAT.t CREATE INDEX i USING btree (id) WITH (zone_size = 512)"
    )
    assert created == [(3, "i")]
    assert catalog.sql("CALL CAT.system.create_index('t', 'j', 'bitmap', array('g'))") == [(3, "j")]
    catalog.sql("INSERT INTO CAT.t SELECT id, 1 FROM range(9000, 9010, 1, 1)")
    assert catalog.sql("ALTER TABLE CAT.t REFRESH INDEX i") == [(4, "i")]
    assert catalog.sql("ALTER TABLE CAT.t OPTIMIZE INDEX j WITH (retrain = true)") == [(4, "j")]
    shown = {row[0]: tuple(row)[1:] for row in catalog.sql("SHOW INDEXES IN CAT.t")}
    assert shown["i"][:6] == (["id"], "BTree", 4, 9010, 0, 0)
    assert shown["j"][1] == "Bitmap"
    assert catalog.sql("SELECT g FROM CAT.t WHERE id = 9004") == [(1,)]
    assert catalog.pylance("t").count_rows("id >= 8999") == 11
    assert catalog.sql("ALTER TABLE CAT.t DROP INDEX i") == [("i", "dropped")]


def test_changes_find_rows_by_the_index(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    table.create_index("id", "BTREE")
    assert table.delete("id = 41").num_deleted_rows == 1
    assert table.update("id IN (42, 43, 44)", {"word": "'new'"}).num_updated_rows == 3
    assert table.toDF().where("word = 'new'").count() == 3
    assert table.toDF().where("id BETWEEN 40 AND 44").count() == 4
    assert lance.dataset(str(path)).count_rows("id >= 40 AND id <= 44") == 4


def test_json_indexes(spark: Any, tmp_path: Path) -> None:
    catalog = TestCatalog.of(spark, "json_indexes", tmp_path)
    documents = [f'{{"a":{number % 50},"s":"w{number}"}}' for number in range(900)]
    data = pa.table({"id": range(900), "js": pa.array(documents, pa.json_())})
    path = str(tmp_path / "t.lance")
    lance.write_dataset(data, path, max_rows_per_file=300)
    LanceTable.forPath(spark, path).create_index(
        "js", "JSON", "by_a", path="a", target_index_type="btree", num_segments=3
    )
    catalog.sql(
        "ALTER TABLE CAT.t CREATE INDEX by_s USING json (js) WITH (path = '$.s', "
        "target_index_type = 'btree', target_index_parameters = '{\"zone_size\": 100}')"
    )
    dataset = lance_spark.open_dataset(path)
    for text, name in (
        ("json_get_int(js, 'a') = 3", "by_a"),
        ("json_get_string(js, 's') = 'w7'", "by_s"),
    ):
        assert name in dataset.explain(filter=text)
        expected = lance.dataset(path).count_rows(filter=text)
        assert dataset.count_rows(text) == expected > 0
    assert all(row.is_valid for row in checks(LanceTable.forPath(spark, path), "by_a"))


@pytest.mark.usefixtures("pushed")
def test_tasks_search_an_index_that_leaves_many_rows(spark: Any, tmp_path: Path) -> None:
    lance_spark.enable(spark)
    path, count = str(tmp_path / "t"), 3_000_000
    lance_spark.write_dataset(pa.table({"id": np.arange(count), "v": np.arange(count) % 7}), path)
    lance_spark.open_dataset(path).create_scalar_index("id", "BTREE")
    lance_spark.open_dataset(path).delete("id % 1000 = 1")
    frame = LanceTable.forPath(spark, path).toDF(driver_read_bytes=0)
    matching = frame.where("id BETWEEN 1000000 AND 1150000").selectExpr("id + 0 AS id")
    ids = np.sort([row.id for row in matching.collect()])
    expected = np.arange(1_000_000, 1_150_001)
    assert np.array_equal(ids, expected[expected % 1000 != 1])
    plan = str(matching._jdf.queryExecution().executedPlan().toString())
    assert "indexes=[id_idx (BTREE): tasks search 1 of its segments]" in plan
