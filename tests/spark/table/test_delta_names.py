"""Names, parameters and results that programs for Delta's `DeltaTable` use."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

import lance_spark
from lance_spark.errors import (
    ArgumentTypeError,
    InvalidInputError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedError,
    UnsupportedTypeError,
)
from lance_spark.spark.table import LanceTable, OptimizeBuilder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of the catalog `shop`, which a session reads once."""
    return str(tmp_path_factory.mktemp("names") / "lake")


@pytest.fixture
def named(spark: Any, root: str) -> Iterator[Any]:
    """A session with the catalog `shop`, and an extended catalog of its own."""
    lance_spark.enable(spark, "shop", root=root, session_catalog=True)
    yield spark
    spark.sql("DROP TABLE IF EXISTS delta_names")
    spark.conf.unset("spark.sql.catalog.spark_catalog")


def rows_of(table: LanceTable) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.toDF().collect())


def test_builders_of_tables_with_names(named: Any, tmp_path: Path) -> None:
    named.sql("CREATE NAMESPACE shop.db")
    fields = [
        StructField("n", IntegerType(), True, {"comment": 'it\'s 5$ \\ "x"'}),
        StructField("s", StructType([StructField("a b", IntegerType(), False)])),
    ]

    def builder(create: Any, name: str) -> Any:
        begun = create(named).tableName(name).addColumn("id", "bigint", False, comment="who")
        begun = begun.addColumns(fields).addColumn("v", "array<float>", vector_dimension=2)
        return begun.property("team", "a 'b'").comment("it's").partitionedBy("n")

    for name, full in (
        ("shop.db.t", "shop.db.t"),
        ("delta_names", "spark_catalog.default.delta_names"),
    ):
        table = builder(LanceTable.create, name).execute()
        frame = table.toDF()
        assert frame.schema.names == ["id", "n", "s", "v"]
        assert not frame.schema["id"].nullable
        assert frame.schema["id"].metadata["comment"] == "who"
        assert frame.schema["n"].metadata["comment"] == fields[0].metadata["comment"]
        assert frame.schema["s"].dataType == fields[1].dataType
        assert lance.dataset(table.path).schema.field("v").type == pa.list_(pa.float32(), 2)
        (detail,) = LanceTable.forName(named, name).alias("x").detail().collect()
        assert (detail.name, detail.description, detail.location) == (full, "it's", table.path)
        assert (detail.partitionColumns, detail.clusteringColumns) == (["n"], [])
        assert detail.properties["team"] == "a 'b'"
        assert (detail.numFiles, detail.lastModified) == (0, detail.last_modified)
        with pytest.raises(AnalysisException, match="already exists"):
            builder(LanceTable.create, name).execute()
        again = LanceTable.createIfNotExists(named).tableName(name).addColumn("x", "int").execute()
        assert again.toDF().columns == frame.columns
        replaced = LanceTable.replace(named).tableName(name).addColumn("x", "int").execute()
        assert replaced.toDF().columns == ["x"]
        assert [row.operation for row in replaced.history().collect()] == ["WRITE", "CREATE TABLE"]
        named.sql(f"DROP TABLE {name}")
        with pytest.raises(AnalysisException, match="cannot be found"):
            builder(LanceTable.replace, name).execute()
        with pytest.raises(TableNotFoundError):
            LanceTable.forName(named, name)
    place = str(tmp_path / "place")
    both = LanceTable.createOrReplace().tableName("delta_names").location(place)
    assert Path(both.addColumn("x", "int").execute().path) == Path(place)
    assert LanceTable.isLanceTable(named, place)
    refused = [
        (LanceTable.create(named).tableName("shop.t"), "at least one column", InvalidInputError),
        (builder(LanceTable.create, "shop.t").option("a", 1), "option a", InvalidInputError),
        (
            LanceTable.create(named)
            .tableName("shop.t")
            .addColumn("k", "int", False, primary_key=True),
            "primary-key",
            UnsupportedError,
        ),
    ]
    for begun, word, error in refused:
        with pytest.raises(error, match=word):
            begun.execute()


def test_other_clients_open_a_table_of_a_namespace(named: Any, root: str) -> None:
    import lance_namespace

    named.sql("CREATE NAMESPACE shop.air")
    named.range(3).write.saveAsTable("shop.air.flights")
    detail = named.sql("DESCRIBE DETAIL shop.air.flights").first()
    assert re.fullmatch(re.escape(root) + r"/[0-9a-f]{8}_air\$flights", detail.location)
    assert LanceTable.forName(named, "shop.air.flights").path == detail.location
    client = lance_namespace.connect("dir", {"root": root})
    names = ["air", "flights"]
    assert lance.dataset(detail.location).count_rows() == 3
    assert lance.dataset(namespace_client=client, table_id=names).count_rows() == 3
    own = lance_spark.open_dataset(namespace_client=client, table_id=names)
    assert own.count_rows() == 3


def test_a_merge_gives_the_table_columns_of_its_source(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = spark.createDataFrame([("a", 1), ("b", 2)], "key string, value int")
    rows.write.format("lance").save(path)
    table = LanceTable.forPath(spark, path)
    source = spark.createDataFrame([("b", 5, 7), ("c", 6, 8)], "key string, extra int, more int")
    merge = table.alias("t").merge(source.alias("s"), "t.key = s.key").withSchemaEvolution()
    with pytest.raises(SchemaMismatchError, match="'other'"):
        merge.whenMatchedUpdate(set={"other": "1"}).execute()
    done = merge.whenMatchedUpdate(set={"t.extra": "s.extra + 1"}).execute()
    assert isinstance(done, DataFrame)
    assert done.columns == [
        f"num_{name}_rows" for name in ("affected", "updated", "deleted", "inserted")
    ]
    assert not any(field.nullable for field in done.schema)
    assert [tuple(row) for row in done.collect()] == [(1, 1, 0, 0)]
    # Columns, then rows. `more` was assigned by no clause.
    assert done.version == 3
    assert table.toDF().columns == ["key", "value", "extra"]
    assert rows_of(table) == [("a", 1, None), ("b", 2, 6)]
    done = merge.whenMatchedDelete().whenNotMatchedInsertAll().execute()
    assert (done.num_inserted_rows, done.num_deleted_rows) == (1, 1)
    assert table.toDF().columns == ["key", "value", "extra", "more"]
    assert rows_of(table) == [("a", 1, None, None), ("c", None, 6, 8)]
    assert merge.whenMatchedUpdateAll().execute().version == 6
    lance.dataset(path).validate()


def test_history_has_the_names_of_users(spark: Any, tmp_path: Path, named: Any) -> None:
    path = str(tmp_path / "t")
    frame = spark.range(0, 10, 1, 2).selectExpr("id", "id % 3 AS g")
    frame.write.format("lance").save(path)
    frame.write.format("lance").mode("append").save(path)
    table = LanceTable.forPath(spark, path)
    table.update("g = 1", {"g": "9"})
    table.merge(spark.range(3), "target.id = source.id").whenMatchedDelete().execute()
    table.delete("id = 4")
    result = table.optimize().where("id > 1").executeCompaction().first()
    assert result.metrics.numFilesRemoved == result.files_removed > 1
    assert (result.path, result.metrics.numFilesAdded, result.fragments_added) == (path, 1, 1)
    table.optimize().executeZOrderBy(["id", "g"])
    named.sql(
        f"MERGE INTO shop.`{path}` AS t USING (SELECT 7L AS k) AS s ON t.id = s.k WHEN MATCHED THEN DELETE"
    )
    named.sql(f"ALTER TABLE shop.`{path}` SET TBLPROPERTIES ('a' = 'b')")
    table.create_index("id", "BTREE")
    feed = named.read.format("lance").option("readChangeData", "true").option("startingVersion", 5)
    assert [row.id for row in feed.option("endingVersion", 5).load(path).collect()] == [4, 4]
    restored = table.restoreToVersion(1)
    frame.where("id < 3").write.format("lance").mode("overwrite").option(
        "overwriteSchema", False
    ).save(path)
    history = [
        (row.operation, row.operationParameters)
        for row in table.history().orderBy("version").collect()
        if row.transaction != "reserve_fragments"
    ]
    assert history == [
        ("WRITE", {"mode": "Create"}),
        ("WRITE", {"mode": "Append"}),
        ("UPDATE", {"predicate": '["g = 1"]'}),
        ("MERGE", {"predicate": '["target.id = source.id"]'}),
        ("DELETE", {"predicate": '["id = 4"]'}),
        ("OPTIMIZE", {"predicate": '["id > 1"]'}),
        ("OPTIMIZE", {"predicate": "[]", "zOrderBy": '["id", "g"]'}),
        ("MERGE", {}),
        ("SET TBLPROPERTIES", {"properties": '{"a": "b"}'}),
        ("CREATE INDEX", {"indexes": '["id_idx"]'}),
        ("RESTORE", {"version": "1"}),
        ("WRITE", {"mode": "Overwrite"}),
    ]
    (numbers,) = restored.collect()
    assert (numbers.version, numbers.num_of_files_after_restore) == (restored.version, 2)
    assert (numbers.num_restored_files, numbers.restored_files_size) == (
        2,
        numbers.table_size_after_restore,
    )
    more = frame.withColumn("extra", F.lit(1)).write.format("lance").mode("overwrite")
    with pytest.raises(AnalysisException, match="extra"):
        more.option("overwriteSchema", False).save(path)
    # A table that does not exist has no columns to keep.
    new = str(tmp_path / "new")
    frame.write.format("lance").mode("overwrite").option("overwriteSchema", False).save(new)
    assert lance.dataset(new).count_rows() == 10


def test_clones(spark: Any, tmp_path: Path) -> None:
    path, target = str(tmp_path / "t"), str(tmp_path / "c")
    for number in range(2):
        spark.range(number + 1).write.format("lance").mode("append").save(path)
    table = LanceTable.forPath(spark, path)
    copy = table.clone(target, False, True, {"team": "x", "lance.auto_cleanup.interval": "9"})
    detail = copy.detail().first()
    assert copy.toDF().count() == 3
    assert (detail.metadata["team"], detail.config["lance.auto_cleanup.interval"]) == ("x", "9")
    assert len(list((tmp_path / "c" / "data").iterdir())) == detail.num_data_files
    old = table.cloneAtVersion(1, str(tmp_path / "old"), isShallow=True)
    assert old.toDF().count() == 1
    assert not (tmp_path / "old" / "data").exists()
    time = table.history().where("version = 1").first().timestamp
    moment = table.cloneAtTimestamp(time, str(tmp_path / "moment"))
    assert moment.toDF().count() == 1
    with pytest.raises(TableExistsError, match="replace=True does not replace"):
        table.clone(target, replace=True)
    with pytest.raises(ArgumentTypeError):
        table.clone(str(tmp_path / "no"), properties={"a": 1})  # type: ignore[dict-item]
    assert not (tmp_path / "no").exists()


def test_what_lance_does_not_have_is_refused(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.range(3).write.format("lance").save(path)
    table = LanceTable.forPath(spark, path, {"branch": "main"})
    for call in (
        lambda: table.generate("symlink_format_manifest"),
        lambda: table.upgradeTableProtocol(1, 3),
        lambda: table.addFeatureSupport("appendOnly"),
        lambda: table.dropFeatureSupport("appendOnly"),
        lambda: LanceTable.convertToDelta(spark, f"parquet.`{path}`"),
        lambda: LanceTable.create(spark).clusterBy("id"),
        lambda: LanceTable.create(spark).addColumn("a", "int", generatedByDefaultAs="1"),
    ):
        with pytest.raises(UnsupportedError):
            call()
    wrong: list[Any] = [
        lambda: table.delete(1),  # type: ignore[arg-type]
        lambda: table.update(set={"id": 1}),  # type: ignore[dict-item]
        lambda: table.update(set={1: "id"}),  # type: ignore[dict-item]
        lambda: table.update({"id": "1"}),  # type: ignore[arg-type]
        lambda: table.merge(1, "a = b"),  # type: ignore[arg-type]
        lambda: table.merge(spark.range(1), 1),  # type: ignore[arg-type]
        lambda: table.restoreToVersion("1"),  # type: ignore[arg-type]
        lambda: table.restoreToTimestamp(12),  # type: ignore[arg-type]
        lambda: table.cloneAtVersion("1", path),  # type: ignore[arg-type]
        lambda: table.optimize().where(1),  # type: ignore[arg-type]
        lambda: table.optimize().where("id = 1").executeZOrderBy(1),  # type: ignore[arg-type]
        lambda: LanceTable.forPath(spark, 1),  # type: ignore[arg-type]
        lambda: LanceTable.create(spark).tableName(1),  # type: ignore[arg-type]
        lambda: LanceTable.create(spark).partitionedBy([1]),  # type: ignore[list-item]
        lambda: LanceTable.create(spark).clusterBy(1),  # type: ignore[arg-type]
        lambda: LanceTable.create(spark).addColumns([1]),  # type: ignore[list-item]
        lambda: LanceTable.create(spark).addColumn("a", "int", generatedAlwaysAs=1),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for call in wrong:
            with pytest.raises(TypeError) as raised:
                call()
            assert isinstance(raised.value, ArgumentTypeError)
    assert lance.dataset(path).version == 1
    with pytest.warns(RuntimeWarning, match="executeCompaction"):
        assert isinstance(table.optimize(), OptimizeBuilder)
    assert lance.dataset(path).version == 1


def test_types_without_a_name_in_sql(named: Any) -> None:
    from pyspark.ml.linalg import VectorUDT

    builder = LanceTable.create(named).tableName("shop.t").addColumn("v", VectorUDT())
    with pytest.raises(UnsupportedTypeError, match="SQL has no name"):
        builder.execute()
