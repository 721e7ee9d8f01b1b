"""DELETE, UPDATE and MERGE by SQL: what is read and written, conflicts, blobs, errors, files."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql.functions import col, expr, lit

import lance_spark
from lance_spark import LanceTable
from lance_spark.spark.catalog.row_changes import abort_row_changes
from lance_spark.spark.read.snapshot import identity_text
from lance_spark.table.fragments.writer import TAG_BYTES
from tests.support.settled import settled

NAME = "row_changes"


def create(spark: Any, name: str, columns: str, rows: str, **properties: str) -> str:
    table = f"{NAME}.{name}"
    texts = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"CREATE TABLE {table} ({columns})" + (f" TBLPROPERTIES ({texts})" if texts else ""))
    spark.sql(f"INSERT INTO {table} {rows}")
    return table


def read(root: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows as pylance reads them, by increasing id."""
    rows = lance.dataset(str(root / f"{name}.lance")).to_table().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def files(root: Path, name: str) -> set[str]:
    """Return the data files and deletion files of a table."""
    table = root / f"{name}.lance"
    return {
        str(path.relative_to(table))
        for folder in ("data", "_deletions")
        for path in (table / folder).rglob("*")
        if path.is_file()
    }


def test_tasks_that_scan_the_rows_write_them(spark: Any, root: Path) -> None:
    """There is no shuffle. Rows of few bytes of several tasks share a fragment, and keep their ids."""
    path = root / "scanned.lance"
    ids = pa.array(range(1_200_000), pa.int32())
    lance.write_dataset(
        pa.table({"id": ids, "v": ids, "a": ids, "b": ids}),
        path,
        max_rows_per_file=500_000,
        enable_stable_row_ids=True,
    )

    def fragments() -> list[int]:
        return [item.count_rows() for item in lance.dataset(str(path)).get_fragments()]

    statements = [
        ("UPDATE {} SET v = -v WHERE id % 100000 = 7", [499_995, 499_995, 199_998, 12]),
        (
            "DELETE FROM {} WHERE hash(id) % 2 = 5 OR id % 250000 = 8",
            [499_993, 499_993, 199_997, 12],
        ),
        ("UPDATE {} SET v = v + 1", [499_993, 499_993, 199_997, 12]),
    ]
    spark.conf.set("spark.lance.pushdown.local", "false")
    try:
        for statement, expected in statements:
            text = statement.format(f"{NAME}.scanned")
            assert "Exchange" not in spark.sql(f"EXPLAIN {text}").first()[0]
            spark.sql(text)
            assert fragments() == expected
        spark.sql(f"UPDATE {NAME}.scanned SET v = 0 WHERE id % 10 = 3")
        # The rows of all tasks.
        assert fragments()[4:] == [120_000]
        spark.sql(f"UPDATE {NAME}.scanned SET v = 5 WHERE id % 10 > 3")
    finally:
        spark.conf.unset("spark.lance.pushdown.local")
    # Each task has written the rows of a fragment.
    assert sum(fragments()[4:]) == 720_000 - 5
    assert len(fragments()) > 5
    rows = lance.dataset(str(path)).to_table(with_row_id=True).sort_by("id").to_pydict()
    kept = [i for i in range(1_200_000) if i % 250_000 != 8]
    assert rows["id"] == rows["_rowid"] == kept
    values = [(0 if i % 10 == 3 else 5) if i % 10 > 2 else 1 + i for i in kept]
    assert rows["v"] == values


def test_columns_that_are_not_assigned_are_not_read(spark: Any, root: Path) -> None:
    table = create(
        spark, "unread", "id BIGINT, v BIGINT, s STRING", "SELECT id, id, 'x' FROM range(6)"
    )
    explain = "EXPLAIN {} WHERE id IN (SELECT id FROM range(2))"
    (plan,) = spark.sql(explain.format(f"UPDATE {table} SET v = v + 1")).first()
    scan = next(line for line in plan.splitlines() if "LocalTableScan" in line or "Scan " in line)
    assert "s#" not in scan
    assert "v#" in scan
    (merge,) = spark.sql(
        f"EXPLAIN MERGE INTO {table} t USING (SELECT id FROM range(2)) r ON t.id = r.id "
        "WHEN MATCHED AND r.id = 0 THEN UPDATE SET v = 1 WHEN MATCHED THEN UPDATE SET s = 'y'"
    ).first()
    scans = [line for line in merge.splitlines() if "TableScan" in line or "BatchScan" in line]
    assert scans
    assert not any("s#" in line or "v#" in line for line in scans)
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT id FROM range(2)) r ON t.id = r.id "
        "WHEN MATCHED AND r.id = 0 THEN UPDATE SET v = 100 WHEN MATCHED THEN UPDATE SET s = 'y'"
    )
    assert [(row["v"], row["s"]) for row in read(root, "unread")[:3]] == [
        (100, "x"),
        (1, "y"),
        (2, "x"),
    ]


def test_hidden_columns_are_read_and_not_assigned(spark: Any, root: Path) -> None:
    table = create(
        spark,
        "hidden",
        "id BIGINT, v BIGINT",
        "SELECT id, 0 FROM range(0, 2, 1, 1)",
        enable_stable_row_ids="true",
    )
    merge = f"MERGE INTO {table} t USING (SELECT 5L AS id) r ON t.id = r.id"
    for statement in (
        f"UPDATE {table} SET _rowid = 5, v = 1",
        f"WITH c AS (SELECT 1) UPDATE {table} AS t SET t._ROWID = _rowid + 1 WHERE id = 1",
        f"{merge} WHEN NOT MATCHED BY SOURCE THEN UPDATE SET _rowid = 7",
        f"{merge} WHEN NOT MATCHED THEN INSERT (id, _rowid) VALUES (r.id, 7)",
    ):
        with pytest.raises(ParseException, match="cannot assign the hidden columns of row_changes"):
            spark.sql(statement)
    spark.sql(f"UPDATE {table} SET v = _rowid WHERE _rowaddr >= 0")
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        spark.sql(f"UPDATE {table} SET _nothing = 1")
    assert sorted((row["id"], row["v"]) for row in read(root, "hidden")) == [(0, 0), (1, 1)]
    matched = "WHEN MATCHED AND r.id = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 5"
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT id FROM range(2)) r ON t._rowid = r.id {matched}"
    )
    assert [(row["id"], row["v"]) for row in read(root, "hidden")] == [(1, 5)]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("DELETE FROM {} WHERE _rowid = 1L", [(0, 0)]),
        ("DELETE FROM {} WHERE _rowid IN (SELECT id FROM picked)", [(0, 0)]),
        ("DELETE FROM {} t WHERE EXISTS (SELECT 1 FROM picked p WHERE p.id = t._rowid)", [(0, 0)]),
        ("UPDATE {} SET v = _rowid", [(0, 0), (1, 1)]),
        ("UPDATE {} SET v = 7L WHERE _rowid = 1L", [(0, 0), (1, 7)]),
        ("UPDATE {} AS t SET v = (SELECT max(id) FROM picked p WHERE p.id = t._rowid)", [(0, None), (1, 1)]),
        ("MERGE INTO {} t USING picked p ON t._rowid = p.id WHEN MATCHED THEN UPDATE SET v = 8L", [(0, 0), (1, 8)]),
        ("MERGE INTO {} t USING picked p ON t.id = p.id WHEN MATCHED AND t._rowid = p.id THEN DELETE", [(0, 0)]),
    ],
)  # fmt: skip
def test_hidden_columns_whose_types_need_no_cast(
    spark: Any, root: Path, statement: str, expected: list[Any]
) -> None:
    name = f"typed{len(list(root.iterdir()))}"
    rows = "SELECT id, 0 FROM range(0, 2, 1, 1)"
    table = create(spark, name, "id BIGINT, v BIGINT", rows, enable_stable_row_ids="true")
    spark.range(1, 2).createOrReplaceTempView("picked")
    spark.sql(statement.format(table))
    assert [(row["id"], row["v"]) for row in read(root, name)] == expected


def test_updates_of_the_same_rows_are_planned_again(spark: Any, root: Path) -> None:
    table = create(spark, "counter", "id BIGINT, v BIGINT", "SELECT id, 0 FROM range(6)")
    with ThreadPoolExecutor(4) as pool:
        update = f"UPDATE {table} SET v = v + 1 WHERE id < 3"
        list(pool.map(lambda _: spark.sql(update), range(6)))
    assert [row["v"] for row in read(root, "counter")] == [6, 6, 6, 0, 0, 0]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {0} WHERE id < (SELECT max(id) FROM {0})",
        "MERGE INTO {0} t USING (SELECT max(id) AS last FROM {0}) s ON t.id < s.last "
        "WHEN MATCHED THEN DELETE",
        "MERGE INTO {0} t USING (SELECT id FROM {0} ORDER BY id DESC LIMIT 1) s ON t.id = s.id "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE",
    ],
)
def test_a_statement_reads_one_version_of_its_table(
    spark: Any, root: Path, statement: str, pushed: None
) -> None:
    """Rows that another client appends after the statement has begun are not seen by parts of it."""
    table = create(spark, "one_version", "id BIGINT", "SELECT id FROM range(5)")
    try:
        state = spark._jsparkSession.sessionState()
        plan = state.sqlParser().parsePlan(statement.format(table))
        query = state.executePlan(plan, getattr(state, "executePlan$default$2")())
        query.analyzed()
        new_rows = pa.table({"id": pa.array([10, 11], pa.int64())})
        lance.write_dataset(new_rows, root / "one_version.lance", mode="append")
        query.assertCommandExecuted()
        assert [row["id"] for row in read(root, "one_version")] == [4, 10, 11]
    finally:
        spark.sql(f"DROP TABLE {table}")


def test_rows_that_are_named_by_address_are_not_planned_again(spark: Any, root: Path) -> None:
    table = create(spark, "places", "id BIGINT, v BIGINT", "SELECT id, 0 FROM range(4)")
    update = f"UPDATE {table} SET v = v + 1 WHERE _rowaddr + id >= 0"

    def run(_: int) -> AnalysisException | None:
        try:
            spark.sql(update)
        except AnalysisException as error:
            return error
        return None

    with ThreadPoolExecutor(3) as pool:
        errors = [error for error in pool.map(run, range(3)) if error]
    for error in errors:
        assert "overtaken" in str(error)
        assert "Traceback" not in str(error)
        assert error.getCondition() == "LANCE_COMMIT_CONFLICT"
    rows = read(root, "places")
    assert [row["v"] for row in rows] == [3 - len(errors)] * 4
    assert len(files(root, "places")) == len(rows_of_version(root, "places"))


def rows_of_version(root: Path, name: str) -> set[str]:
    """Return the files that any version of a table refers to."""
    dataset = lance.dataset(str(root / f"{name}.lance"))
    used: set[str] = set()
    for version in dataset.versions():
        for fragment in dataset.checkout_version(version["version"]).get_fragments():
            used.update(f"data/{file.path}" for file in fragment.data_files())
            if fragment.deletion_file() is not None:
                used.add(fragment.deletion_file())
    return used


def test_blobs_go_from_file_to_file(spark: Any, root: Path) -> None:
    properties = {"data.lance.encoding": "blob"}
    rows = "VALUES (1, X'0102'), (2, X'0304'), (3, X'05')"
    table = create(spark, "blobs", "id BIGINT, data BINARY", rows, **properties)
    spark.sql(f"UPDATE {table} SET id = 20 WHERE id = 2")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT 3L AS id, X'FF' AS data UNION ALL SELECT 4L, X'EE') s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = 30 WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(f"UPDATE {table} SET data = X'AA' WHERE id = 1")
    spark.sql(f"DELETE FROM {table} WHERE data = X'EE'")
    dataset = lance.dataset(str(root / "blobs.lance"))
    ids = dataset.to_table(columns=["id"])["id"].to_pylist()
    blobs = dataset.take_blobs("data", indices=list(range(len(ids))))
    assert dict(zip(ids, (blob.readall() for blob in blobs), strict=True)) == {
        1: b"\xaa",
        20: b"\x03\x04",
        30: b"\x05",
    }


def test_clauses_of_a_merge(spark: Any, root: Path) -> None:
    table = create(
        spark,
        "clauses",
        "id BIGINT, st STRUCT<a: INT, b: STRING>, s STRING",
        "SELECT id, struct(cast(id AS INT), 'x'), 'old' FROM range(6)",
    )
    # Names of parameters, common table expressions, stars, fields of structs, several clauses.
    spark.sql(
        f"WITH src AS (SELECT id, named_struct('a', 9, 'b', 'y') AS st, 'new' AS s FROM range(7)"
        f" WHERE id > :first) MERGE INTO {table} t USING src ON t.id = src.id "
        "WHEN MATCHED AND t.id = :star THEN UPDATE SET * "
        "WHEN MATCHED AND t.id = 3 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET st.b = :text, t.s = concat(t.s, src.s) "
        "WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN UPDATE SET st.a = -1 "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE",
        args={"first": 1, "star": 2, "text": "z"},
    )
    assert [tuple(row.values()) for row in read(root, "clauses")] == [
        (0, {"a": -1, "b": "x"}, "old"),
        (2, {"a": 9, "b": "y"}, "new"),
        (4, {"a": 4, "b": "z"}, "oldnew"),
        (5, {"a": 5, "b": "z"}, "oldnew"),
        (6, {"a": 9, "b": "y"}, "new"),
    ]
    assert lance.dataset(str(root / "clauses.lance")).version == 3


def test_merge_into_of_dataframes(spark: Any, root: Path) -> None:
    table = create(spark, "frames", "id BIGINT, v INT", "SELECT id, 0 FROM range(4)")
    source = spark.sql("SELECT id, 1 AS v FROM range(2, 6)").alias("s")
    merge = source.mergeInto(table, expr(f"{table}.id = s.id"))
    merge = merge.whenMatched(expr("s.id = 2")).delete().whenMatched().update({"v": col("s.v")})
    merge = merge.whenNotMatched(expr("s.id = 4")).insert({"id": col("s.id"), "v": lit(7)})
    merge = merge.whenNotMatchedBySource(expr(f"{table}.id = 0")).update({"v": lit(-1)})
    merge.whenNotMatchedBySource().delete().merge()
    assert [tuple(row.values()) for row in read(root, "frames")] == [(0, -1), (3, 1), (4, 7)]


def test_several_source_rows_for_one_row_are_an_error(spark: Any, root: Path) -> None:
    table = create(spark, "cardinality", "id BIGINT, v BIGINT", "SELECT id, 0 FROM range(4)")
    before = files(root, "cardinality")
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        spark.sql(
            f"MERGE INTO {table} t USING (SELECT 1L AS id UNION ALL SELECT 1L) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = 9"
        )
    assert settled(lambda: files(root, "cardinality"), before) == before
    assert [row["v"] for row in read(root, "cardinality")] == [0, 0, 0, 0]


def test_several_source_rows_delete_a_row_once(spark: Any, root: Path) -> None:
    """Spark does not count the matches of a row, if a MERGE only deletes without a condition."""
    table = create(spark, "deleted_once", "id BIGINT", "SELECT id FROM range(6)")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT id % 2 AS id FROM range(200000)) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.id = 5 THEN DELETE"
    )
    assert [row["id"] for row in read(root, "deleted_once")] == [2, 3, 4]


def test_a_value_that_does_not_fit_changes_nothing(spark: Any, root: Path) -> None:
    table = create(
        spark, "not_null", "id BIGINT NOT NULL, v INT", "SELECT id, cast(id AS INT) FROM range(4)"
    )
    before = files(root, "not_null")
    with pytest.raises(PySparkException):
        spark.sql(f"UPDATE {table} SET id = if(v = 3, NULL, id)")
    with pytest.raises(PySparkException, match="OVERFLOW"):
        spark.sql(f"UPDATE {table} SET v = v + 2147483647")
    assert settled(lambda: files(root, "not_null"), before) == before
    assert [row["v"] for row in read(root, "not_null")] == [0, 1, 2, 3]


def test_small_deletes_need_no_job(spark: Any, root: Path) -> None:
    table = create(spark, "small", "id BIGINT, s STRING", "SELECT id, 'x' FROM range(6)")
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("deletes", "deletes")
    try:
        spark.sql(f"DELETE FROM {table} WHERE id = 2 OR s LIKE 'y%'")
        spark.sql(f"TRUNCATE TABLE {table}")
        assert not tracker.getJobIdsForGroup("deletes")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    dataset = lance.dataset(str(root / "small.lance"))
    assert dataset.count_rows() == 0
    assert dataset.checkout_version(3).count_rows() == 5


def test_caches_and_views_show_later_statements(spark: Any, root: Path) -> None:
    table = create(spark, "cached", "id BIGINT, v BIGINT", "SELECT id, 1 FROM range(4)")
    spark.sql(f"CACHE TABLE {table}")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_cached AS SELECT sum(v) AS v FROM {table}")
    path = str(root / "cached.lance")
    changes = [
        (f"UPDATE {table} SET v = 10 WHERE id IN (SELECT id FROM range(2))", 22),
        (f"DELETE FROM {table} WHERE id = 0", 12),
        (f"INSERT INTO {table} VALUES (5, 100)", 112),
        (
            f"MERGE INTO {table} t USING (SELECT 5L AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = 200",
            212,
        ),
        # Spark does not see changes of other clients, nor changes by methods.
        (lambda: LanceTable.forPath(spark, path).delete("id = 5"), 212),
        (f"REFRESH TABLE {table}", 12),
        (f"CALL {NAME}.system.restore_to_version(table => '{table}', version => 2)", 4),
        (f"CALL {NAME}.system.delete('{path}', 'id = 3')", 4),
        (f"REFRESH TABLE {table}", 3),
        (f"CALL {NAME}.system.restore_to_version('{path}', 2)", 3),
        (f"CALL {NAME}.system.validate('cached')", 4),
    ]
    try:
        for change, total in changes:
            before = spark.table(table)
            assert "InMemoryRelation" in before._jdf.queryExecution().withCachedData().toString()
            spark.sql(change) if isinstance(change, str) else change()
            assert spark.sql(f"SELECT sum(v) FROM {table}").first()[0] == total, change
            assert spark.table("of_cached").first()[0] == total, change
        spark.sql(f"ALTER TABLE {table} ADD COLUMN w INT")
        assert spark.table(table).columns == ["id", "v", "w"]
        assert [row["w"] for row in spark.table(table).collect()] == [None] * 4
    finally:
        spark.sql(f"UNCACHE TABLE IF EXISTS {table}")


def test_keys_of_new_rows_are_recorded(spark: Any, root: Path) -> None:
    table = create(spark, "keys", "id BIGINT NOT NULL, v BIGINT", "SELECT id, 0 FROM range(3)")
    path = str(root / "keys.lance")
    dataset = lance.dataset(path)
    dataset.replace_field_metadata("id", {"lance-schema:unenforced-primary-key": "true"})
    merge = (
        f"MERGE INTO {table} t USING (SELECT id + 2 AS id FROM range(3)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = 5 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (id, 7)"
    )
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: spark.sql(merge), range(2)))
    # Without the keys in the transactions, both statements would insert the new rows.
    assert [(row["id"], row["v"]) for row in read(root, "keys")] == [
        (0, 0),
        (1, 0),
        (2, 5),
        (3, 5),
        (4, 5),
    ]


@pytest.mark.parametrize(
    "clauses",
    [
        "WHEN NOT MATCHED THEN INSERT *",
        "WHEN NOT MATCHED AND s.v > 8 THEN INSERT (id, v) VALUES (id, 8) "
        "WHEN NOT MATCHED THEN INSERT *",
    ],
)
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_a_merge_that_only_inserts_is_planned_again_after_an_insert(
    spark: Any, root: Path, tmp_path: Path, clauses: str, mode: str
) -> None:
    name = f"only_inserts{len(list(root.iterdir()))}"
    table = create(spark, name, "id BIGINT NOT NULL, v BIGINT", "SELECT id, 0 FROM range(3)")
    path, done = str(root / f"{name}.lance"), tmp_path / "done"
    spark.sql(f"ALTER TABLE {table} SET UNENFORCED PRIMARY KEY (id)")

    def while_another_client_inserts(value: int) -> int:
        with suppress(FileExistsError):
            # Two tasks evaluate the function; one of them inserts.
            done.touch(exist_ok=False)
            row = pa.table({"id": [3], "v": [9]})
            if mode == "append":
                # Its transaction has no keys: it conflicts until the statement reads its version.
                lance_spark.write_dataset(row, path, mode="append")
            else:
                merge = lance_spark.open_dataset(path).merge_insert("id")
                merge.when_not_matched_insert_all().execute(row)
        return value

    spark.udf.register("while_another_client_inserts", while_another_client_inserts, "bigint")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT id + 2 AS id, while_another_client_inserts(7) AS v "
        f"FROM range(3)) s ON t.id = s.id {clauses}"
    )
    expected = [(0, 0), (1, 0), (2, 0), (3, 9), (4, 7)]
    assert [(row["id"], row["v"]) for row in read(root, name)] == expected
    statement = f"MERGE INTO {table} t USING (SELECT 4L AS id, 1L AS v) s ON t.id = s.id {clauses}"
    spark.sql(statement)
    assert [(row["id"], row["v"]) for row in read(root, name)] == expected


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {} SET v = while_it_is_created_again(v) + 1 WHERE id >= 0",
        "MERGE INTO {} t USING (SELECT 1L AS id, while_it_is_created_again(5) AS v) s "
        "ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
    ],
)
def test_rows_of_a_table_that_is_created_again_do_not_change(
    spark: Any, root: Path, tmp_path: Path, statement: str
) -> None:
    """Another client drops the table during the statement, and creates one of the same name."""
    name = f"recreated{len(list(root.iterdir()))}"
    query = "SELECT id, id AS v FROM range(3)"
    spark.sql(f"CREATE TABLE {NAME}.{name} AS {query}")
    path, done = root / f"{name}.lance", tmp_path / "done"
    others = {"id": [100, 200, 300], "v": [7, 8, 9]}

    def while_it_is_created_again(value: int) -> int:
        with suppress(FileExistsError):
            done.touch(exist_ok=False)
            shutil.rmtree(path)
            lance.write_dataset(pa.table(others), path)
        return value

    spark.udf.register("while_it_is_created_again", while_it_is_created_again, "bigint")
    # A task of the UPDATE opens the table after the condition, or the commit does.
    with pytest.raises(PySparkException, match="created again; run the"):
        spark.sql(statement.format(f"{NAME}.{name}"))
    assert done.exists()
    assert lance.dataset(str(path)).to_table().to_pydict() == others
    assert files(root, name) == rows_of_version(root, name)


@pytest.mark.parametrize("commit_attempted", [True, False])
def test_abort_keeps_files_of_a_commit_whose_answer_was_lost(
    spark: Any, root: Path, commit_attempted: bool
) -> None:
    name = f"lost_answer_{commit_attempted}".lower()
    table = create(spark, name, "id BIGINT, s STRING", "SELECT id, 'a' FROM range(10)")
    before, version = files(root, name), lance.dataset(str(root / f"{name}.lance")).version
    spark.sql(f"UPDATE {table} SET s = 'b' WHERE id < 3")
    new = files(root, name) - before
    assert len(new) == 2
    (tag,) = {Path(path).stem[-2 * TAG_BYTES :] for path in new if path.startswith("data/")}
    planned = lance_spark.open_dataset(str(root / f"{name}.lance"), version=version)
    identity = identity_text(planned._table.manifest)
    write = {"tag": tag, "version": version, "identity": identity}
    options = {"path": str(root / f"{name}.lance")}
    abort_row_changes({"options": options, "write": write, "commit_attempted": commit_attempted})
    assert files(root, name) == before | new
    lance.dataset(str(root / f"{name}.lance")).validate()


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("DELETE FROM {0} WHERE id < 2", [2]),
        ("DELETE FROM {0} WHERE id < (SELECT max(id) FROM {0})", [2]),
        ("UPDATE {0} SET id = 9 WHERE id = 1", [0, 2, 9]),
        (
            "MERGE INTO {0} t USING (SELECT id + 2 AS id FROM {0}) s ON t.id = s.id "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
            [0, 1, 3, 4],
        ),
    ],
)
def test_a_cached_table_has_the_rows_after_a_change(
    spark: Any, root: Path, statement: str, expected: list[int], pushed: None
) -> None:
    """The cache is read again while the statement ends."""
    table = create(spark, "cached_rows", "id BIGINT", "SELECT id FROM range(3)")
    try:
        spark.sql(f"CACHE TABLE {table}")
        spark.sql(statement.format(table))
        frame = spark.table(table)
        assert "InMemoryRelation" in frame._jdf.queryExecution().executedPlan().toString()
        assert sorted(row["id"] for row in frame.collect()) == expected
    finally:
        spark.sql(f"UNCACHE TABLE IF EXISTS {table}")
        spark.sql(f"DROP TABLE {table}")


def test_merge_takes_values_that_differ_each_time(spark: Any, root: Path) -> None:
    """uuid(), rand() and a function that is not deterministic, in the source and in the clauses.

    The source is read once: a second reading would have other keys, and miss the row that matches.
    """
    import random

    from pyspark.sql.functions import udf

    draw = udf(lambda _: random.random(), "double").asNondeterministic()
    spark.udf.register("row_changes_draw", draw)
    both = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    table = create(
        spark, "random", "id BIGINT, k STRING, x DOUBLE", "SELECT id, '', -1D FROM range(4)"
    )
    spark.sql(
        "CREATE OR REPLACE TEMP VIEW drawn AS SELECT id + 2 AS id, uuid() AS k, "
        "row_changes_draw(id) AS x FROM range(4)"
    )
    spark.sql(f"MERGE INTO {table} USING drawn AS s ON random.id = s.id {both}")
    rows = read(root, "random")
    assert [len(row["k"]) for row in rows] == [0, 0, 36, 36, 36, 36]
    assert len({row["x"] for row in rows}) == 5
    spark.sql(
        f"MERGE INTO {table} AS t USING (SELECT id + 5 AS id FROM range(2)) AS s ON t.id = s.id "
        "WHEN MATCHED AND t.id = 5 THEN UPDATE SET k = concat('u', uuid()) "
        "WHEN NOT MATCHED THEN INSERT (id, k, x) VALUES (s.id, uuid(), row_changes_draw(s.id)) "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN UPDATE SET x = 2 + rand(), k = uuid()"
    )
    changed = read(root, "random")
    assert [len(row["k"]) for row in changed] == [36, 0, 36, 36, 36, 37, 36]
    assert changed[0]["x"] >= 2
    assert [row["x"] for row in changed[1:6]] == [row["x"] for row in rows[1:]]
    assert changed[1:5] == rows[1:5]
    for _ in range(3):
        source = "SELECT cast(floor(rand() * 7) AS BIGINT) AS id, uuid() AS k, rand() AS x"
        spark.sql(f"MERGE INTO {table} AS t USING ({source}) AS s ON t.id = s.id {both}")
    source = spark.table("drawn").alias("s")
    source.mergeInto(table, expr("random.id = s.id")).whenMatched().updateAll().merge()
    LanceTable.forPath(spark, str(root / "random.lance")).alias("t").merge(
        source, "t.id = s.id"
    ).whenMatchedUpdate(set={"k": "uuid()", "x": "rand()"}).execute()
    assert [row["id"] for row in read(root, "random")] == list(range(7))
    with pytest.raises(AnalysisException, match="Non-deterministic expressions are not allowed"):
        spark.sql(f"MERGE INTO {table} AS t USING drawn s ON rand() < 2 WHEN MATCHED THEN DELETE")
