"""Blobs through Spark: written by an option or metadata, read as bytes or descriptions, or left
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import lance_spark
from lance_spark import LanceTable
from lance_spark.errors import InvalidOptionError
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.options.write import WriteOptions
from tests.spark.sql.catalogs import TestCatalog
from tests.support.interop.blobs import (
    blob_paths,
    check_reads,
    extended,
    in_struct,
    marked,
    minimal,
    table,
)
from tests.support.spark.versions import SPARK

Read, Write = Callable[..., Any], Callable[..., None]
VERSIONS = ("2.0", "2.1", "2.2")
SMALL = {
    "lance-encoding:blob": "true",
    "lance-encoding:blob-inline-size-threshold": "1000",
    "lance-encoding:blob-dedicated-size-threshold": "40000",
}
BLOB = "cast(repeat(cast(id as string), cast(id * 1000 as int)) as binary)"


@pytest.fixture
def frame(spark: Any) -> Any:
    """Return forty values: null, empty, and up to 78 kB long."""
    blob = F.when(F.col("id") % 7 == 3, None).otherwise(F.expr(BLOB))
    return spark.range(0, 40, 1, 2).select("id", blob.alias("b"), F.lit(b"plain").alias("p"))


def expected(rows: int = 40) -> dict[int, bytes | None]:
    return {
        index: None if index % 7 == 3 else str(index).encode() * (index * 1_000)
        for index in range(rows)
    }


def by_id(rows: list[Any]) -> dict[int, bytes | None]:
    return {row["id"]: None if row["b"] is None else bytes(row["b"]) for row in rows}


def content(path: Path) -> dict[int, bytes | None]:
    dataset = lance.dataset(str(path))
    dataset.validate()
    return by_id(dataset.to_table(["id", "b"], blob_handling="all_binary").to_pylist())


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("version", "mark"), [*((version, "option") for version in VERSIONS), ("2.2", "metadata")]
)
def test_round_trip(
    read: Read, write: Write, frame: Any, tmp_path: Path, version: str, mark: str
) -> None:
    path = tmp_path / "t.lance"
    if mark == "option":
        write(frame, data_storage_version=version, **{"B.lance.encoding": "blob"})
    else:
        write(frame.withMetadata("b", SMALL), data_storage_version=version)
    assert blob_paths(lance.dataset(str(path)).schema) == ["b"]
    assert content(path) == expected()
    check_reads(path)
    binary = read()
    assert dict(binary.dtypes) == {"id": "bigint", "b": "binary", "p": "binary"}
    assert by_id(binary.collect()) == expected()
    described = read(blob_handling="blobs_descriptions")
    sizes = {row["id"]: row["size"] for row in described.select("id", "b.size").collect()}
    lengths = {
        row_id: None if value is None else len(value) for row_id, value in expected().items()
    }
    assert sizes == lengths
    assert described.agg(F.count("b"), F.count("b.size")).first() == (34, 34)
    assert described.where("b IS NULL AND b.position IS NULL").count() == 6
    none = read(blob_handling="none")
    assert none.columns == ["id", "p"]
    assert none.count() == 40
    # Nulls are found by descriptors, in all versions alike.
    nulls = [row_id for row_id, value in expected().items() if value is None]
    assert sorted(row["id"] for row in binary.where("b IS NULL").collect()) == nulls
    assert binary.where("b IS NOT NULL AND id < 20").count() == 17
    assert tuple(binary.agg(F.count("b"), F.count("*")).first()) == (34, 40)
    table = LanceTable.forPath(binary.sparkSession, str(path))
    assert table.update("b IS NULL", {"p": "X'00'"}).num_updated_rows == len(nulls)
    assert read().where("p = X'00'").count() == len(nulls)
    # An append follows the table, for any type of the data.
    write(frame.where("id < 5"))
    assert read().where("id < 5").count() == 10
    assert content(path) == expected()


@pytest.mark.parametrize(("version", "target"), [("2.0", "2.2"), ("2.1", "2.0"), ("2.2", "2.1")])
def test_a_copy_has_blobs_again(
    read: Read, write: Write, frame: Any, tmp_path: Path, version: str, target: str
) -> None:
    write(frame.withMetadata("b", SMALL), data_storage_version=version)
    copy = tmp_path / "copy.lance"
    write(read(), "append", str(copy), data_storage_version=target)
    assert blob_paths(lance.dataset(str(copy)).schema) == ["b"]
    assert content(copy) == expected()


@pytest.mark.parametrize("version", VERSIONS)
def test_blob_descriptions_are_not_blobs(
    read: Read, write: Write, frame: Any, tmp_path: Path, version: str
) -> None:
    write(frame, data_storage_version=version, **{"b.lance.encoding": "blob"})
    described, other = read(blob_handling="blobs_descriptions"), str(tmp_path / "u.lance")
    refused = r"column \S+ has descriptors of blobs without their bytes.*blob_handling=all_binary"
    table = LanceTable.forPath(described.sparkSession, str(tmp_path / "t.lance"))
    writes: list[Callable[[], Any]] = [
        lambda: write(described),
        lambda: write(described, "overwrite"),
        lambda: write(described, "overwrite", other, **{"b.lance.encoding": "blob"}),
        # The mark goes where the value goes.
        lambda: write(described.select(F.coalesce("b", "b").alias("x")), "overwrite", other),
        lambda: write(described.select(F.array(F.struct("b"))), "overwrite", other),
        lambda: table.add_columns_from(described.selectExpr("id", "b AS c"), "id"),
        lambda: table.replace_where(described, "id > 0"),
    ]
    for each in writes:
        with pytest.raises(Exception, match=refused):
            each()
    assert not Path(other).exists()
    # Numbers that are taken out of descriptors are data.
    write(described.selectExpr("id", "struct(b.size AS bytes) AS b"), "overwrite", other)
    assert lance.dataset(other).schema.field("b").type == pa.struct([("bytes", pa.int64())])
    assert content(tmp_path / "t.lance") == expected()


def test_structs_of_the_table_are_not_descriptors(
    read: Read, write: Write, spark: Any, tmp_path: Path
) -> None:
    """A column has the type of descriptors. Spark drops the mark of descriptors in casts to it."""
    catalog = TestCatalog.of(spark, "no_descriptors", tmp_path)
    frame = spark.range(1, 4).selectExpr("id", "cast('blob' as binary) AS b")
    write(frame, data_storage_version="2.2", **{"b.lance.encoding": "blob"})
    described = read(blob_handling="blobs_descriptions").withColumnRenamed("b", "p")
    plain = "cast(0 AS smallint) AS kind, id AS position, id AS size, id AS blob_id, '' AS blob_uri"
    ours = spark.range(11, 14).selectExpr("id", f"struct({plain}) AS p")
    assert ours.schema["p"].dataType.fieldNames() == described.schema["p"].dataType.fieldNames()
    ours.createOrReplaceTempView("ours")
    described.createOrReplaceTempView("described")
    both = ours.union(described)
    both.createOrReplaceTempView("both")
    catalog.run(["CREATE TABLE CAT.own AS TABLE ours"])
    path = catalog.pylance("own").uri
    table = LanceTable.forPath(spark, path).alias("t")
    before = catalog.pylance("own").version
    shape = described.schema["p"].dataType.simpleString()
    given = spark.read.schema(f"id bigint, b {shape}").format("lance")
    given = given.option("blob_handling", "all_descriptions").load(str(tmp_path / "t.lance"))
    change = "MERGE INTO CAT.own t USING described AS s ON t.id = s.id + 10 WHEN MATCHED THEN"

    def merge(rows: Any, value: str) -> Callable[[], Any]:
        found = table.merge(rows, "t.id = source.id + 10")
        return found.whenMatchedUpdate(set={"p": value}).execute

    def twice(rows: Any) -> Any:
        """Return the second side of a join of a frame with itself."""
        return rows.alias("x").join(rows.alias("y"), "id").select("id", "y.p")

    refused: list[str | Callable[[], Any]] = [
        "INSERT INTO CAT.own TABLE described",
        "INSERT INTO CAT.own BY NAME SELECT p, id FROM described",
        "INSERT OVERWRITE CAT.own SELECT id, coalesce(ours.p, d.p) FROM described d "
        "LEFT JOIN ours USING (id)",
        f"INSERT INTO CAT.own SELECT id, CAST(p AS {shape}) FROM described",
        "INSERT INTO CAT.own WITH x AS (TABLE both) SELECT id, max(p) FROM x GROUP BY id",
        "INSERT INTO CAT.own SELECT 0, explode(collect_list(p)) FROM both",
        f"{change} UPDATE SET p = s.p",
        f"{change} UPDATE SET p = coalesce(t.p, s.p)",
        "UPDATE CAT.own SET p = (SELECT max(p) FROM described)",
        "CREATE TABLE CAT.u AS TABLE both",
        lambda: (
            described.mapInPandas(lambda rows: rows, ours.schema)
            .writeTo(f"{catalog.name}.own")
            .append()
        ),
        lambda: write(both, path=path),
        # Of a checkpoint, Spark knows no plan.
        lambda: write(both.localCheckpoint(), path=path),
        lambda: write(twice(both.localCheckpoint()), path=path),
        merge(described, "source.p"),
        merge(both, "coalesce(t.p, source.p)"),
        lambda: table.update(set={"p": "(SELECT max(p) FROM both)"}),
        lambda: table.update_columns_from(both, "id"),
        lambda: table.add_columns_from(both.withColumnRenamed("p", "q"), "id"),
        lambda: table.replace_where(both, "id > 0"),
        given.collect,
    ]
    for each in refused:
        with pytest.raises(Exception, match="descriptors of blobs"):
            catalog.sql(each) if isinstance(each, str) else each()
    assert catalog.pylance("own").version == before
    assert not (tmp_path / "u.lance").exists()
    # Values of users, beside descriptors, and numbers out of descriptors are data.
    catalog.run(
        [
            "INSERT INTO CAT.own BY NAME SELECT ours.p, ours.id FROM ours JOIN described d "
            "ON d.id + 10 = ours.id",
            f"{change} UPDATE SET id = t.id + s.p.size - 4",
            "MERGE INTO CAT.own t USING (SELECT o.*, d.p AS q FROM ours o JOIN described d "
            "ON d.id + 10 = o.id) s ON s.id = t.id WHEN MATCHED THEN UPDATE SET p = s.p "
            "WHEN NOT MATCHED THEN INSERT (id, p) VALUES (s.id, s.p)",
            "CREATE TABLE CAT.sizes AS SELECT id, struct(id AS row, p.size) AS s FROM described",
        ]
    )
    own = spark.range(11, 14).selectExpr("id - 10 AS id", f"struct({plain}) AS p")
    merge(own.localCheckpoint(), "source.p")()
    assert catalog.sql("SELECT count(*) FROM CAT.own WHERE id = p.position") == [(6,)]
    assert catalog.sql("SELECT sum(s.size) FROM CAT.sizes") == [(12,)]


def test_every_copy_has_the_bytes(spark: Any, frame: Any, tmp_path: Path) -> None:
    catalog = TestCatalog.of(spark, "copies", tmp_path)
    source, rows = tmp_path / "source.lance", expected()
    frame.write.format("lance").option("b.lance.encoding", "blob").save(str(source))
    read = spark.read.format("lance").load(str(source))
    read.createOrReplaceTempView("blobs_to_copy")

    def save(rows: Any, path: Path) -> None:
        rows.write.format("lance").mode("overwrite").save(str(path))

    def stream(path: Path) -> None:
        query = (
            spark.readStream.format("lance")
            .load(str(source))
            .writeStream.format("lance")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(path))
        )
        query.awaitTermination()

    def named(name: str, *statements: str) -> Path:
        catalog.run(list(statements))
        return Path(catalog.pylance(name).uri)

    def by_path(copy: Callable[[Path], None]) -> Path:
        copy(path := tmp_path / f"{len(list(tmp_path.iterdir()))}.lance")
        return path

    def replaced(path: Path) -> None:
        save(read, path)
        # The optimizer makes expressions of the columns, which have no metadata.
        save(spark.read.format("lance").load(str(path)).dropDuplicates(["id"]), path)

    twice = "SELECT a.* FROM blobs_to_copy a JOIN blobs_to_copy b USING (id) ORDER BY a.id"
    like = "CREATE TABLE CAT.l LIKE CAT.ctas"
    if SPARK < (4, 2):
        like = "CREATE TABLE CAT.l AS SELECT * FROM CAT.ctas WHERE false"
    copies = [
        named("ctas", "CREATE TABLE CAT.ctas AS SELECT * FROM blobs_to_copy"),
        named("joined", f"CREATE TABLE CAT.joined AS {twice}"),
        named("ctas", "CREATE OR REPLACE TABLE CAT.ctas AS SELECT * FROM CAT.ctas"),
        named("ctas", "INSERT OVERWRITE CAT.ctas SELECT * FROM CAT.ctas"),
        named("l", like, "INSERT INTO CAT.l TABLE blobs_to_copy"),
        by_path(lambda path: save(read.cache().repartition(3), path)),
        by_path(replaced),
        by_path(stream),
    ]
    for path in copies:
        assert blob_paths(lance.dataset(str(path)).schema) == ["b"], path
        assert content(path) == rows, path
    read.unpersist()


def test_statements_on_the_bytes(spark: Any, frame: Any, tmp_path: Path) -> None:
    catalog = TestCatalog.of(spark, "on_bytes", tmp_path)
    frame.where("id < 10").writeTo("on_bytes.t").tableProperty("b.lance.encoding", "blob").create()
    lengths = {row_id: value and len(value) for row_id, value in expected(10).items()}
    assert dict(catalog.sql("SELECT id, length(b) FROM CAT.t")) == lengths | {0: 0}
    assert catalog.sql("SELECT id FROM CAT.t WHERE length(b) = 2000") == [(2,)]
    assert catalog.sql("SELECT id FROM CAT.t WHERE b = X''") == [(0,)]
    catalog.run(
        [
            "DELETE FROM CAT.t WHERE length(b) = 2000",
            "UPDATE CAT.t SET b = concat(b, X'00') WHERE length(b) = 1000",
            "MERGE INTO CAT.t USING (SELECT 4L AS k) ON id = k AND length(b) = 4000 "
            "WHEN MATCHED THEN UPDATE SET b = X'01'",
            "CALL CAT.system.add_columns('t', map('n', 'length(b)'))",
        ]
    )
    found = dict(catalog.sql("SELECT id, n FROM CAT.t"))
    assert found == {0: 0, 1: 1001, 3: None, 4: 1, **{n: n * 1000 for n in range(5, 10)}}
    path = catalog.pylance("t").uri
    table = LanceTable.forPath(spark, path)
    table.add_columns({"m": F.length("b")})
    assert catalog.sql("SELECT count(*) FROM CAT.t WHERE m <=> n") == [(9,)]
    assert table.delete("length(b) = 1001").num_deleted_rows == 1
    described = LanceTable.forPath(spark, path, blob_handling="blobs_descriptions")
    assert described.toDF().schema["b"].dataType.fieldNames()[1:3] == ["position", "size"]
    assert described.delete("b.size = 5000").num_deleted_rows == 1
    assert LanceTable.forPath(spark, path, blob_handling="none").toDF().columns[:2] == ["id", "p"]


@pytest.mark.usefixtures("pushed")
def test_queries_without_the_bytes_do_not_read_them(spark: Any, frame: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    large = frame.withMetadata("b", {**SMALL, "lance-encoding:blob-inline-size-threshold": "1"})
    large.write.format("lance").option("data_storage_version", "2.2").save(str(path))
    for file in path.rglob("*.blob"):
        file.unlink()
    read = spark.read.format("lance").load(str(path))
    assert read.drop("b").where("id % 2 = 0").count() == 20
    assert tuple(read.agg(F.count("b"), F.count("id")).first()) == (34, 40)
    assert read.groupBy("p").agg(F.count("b")).first()[1] == 34
    assert read.where("b IS NULL").count() == 6
    assert len(read.select("id").where("b IS NOT NULL OR id = 3").collect()) == 35
    table = LanceTable.forPath(spark, str(path))
    assert table.delete("b IS NULL").num_deleted_rows == 6
    with pytest.raises(Exception, match=r"\.blob"):
        read.select("b").collect()


MADE: dict[str, Callable[[Any], Any]] = {
    "2.0": marked,
    "2.1": marked,
    "2.2": marked,
    "extended": extended,
    "minimal": minimal,
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("made", list(MADE))
def test_appends_to_tables_of_pylance(
    read: Read, write: Write, frame: Any, tmp_path: Path, made: str
) -> None:
    path = tmp_path / "t.lance"
    old = {-1: b"old", -2: None, -3: b"", -4: b"o" * 7_000}
    data = table(MADE[made](list(old.values())), ids=False)
    data = data.append_column("id", pa.array(list(old), pa.int64()))
    version = made if made in VERSIONS else "2.2"
    lance.write_dataset(data, str(path), data_storage_version=version)
    write(frame.select("b", "id"))
    assert content(path) == old | expected()
    assert by_id(read().collect()) == old | expected()
    assert read(blob_handling="none").columns == ["id"]
    check_reads(path)


def test_blobs_in_structs(read: Read, write: Write, tmp_path: Path) -> None:
    values = [b"a", None, b"ccc", b"", b"d" * 7_000] * 4
    lance.write_dataset(table(in_struct(values, True)), str(tmp_path / "t.lance"))
    result = read()
    rows = {row["i"]: row["s"] for row in result.collect()}
    assert [rows[index] and rows[index]["b"] for index in range(20)] == [
        None if index % 7 == 3 else value for index, value in enumerate(values)
    ]
    assert read(blob_handling="none").select("s.*").columns == ["x", "plain"]
    sizes = (
        read(columns="s.b,i", blob_handling="blobs_descriptions")
        .select("i", "s.b.size")
        .orderBy("i")
        .collect()
    )
    assert [row["size"] for row in sizes][:5] == [1, None, 3, None, 7_000]
    write(result, "overwrite", str(tmp_path / "copy.lance"))
    assert blob_paths(lance.dataset(str(tmp_path / "copy.lance")).schema) == ["s.b"]
    check_reads(tmp_path / "copy.lance")


def test_lists_of_blobs(read: Read, write: Write, spark: Any, tmp_path: Path) -> None:
    """The lists are created by an option, appended to in three ways, and changed. pylance reads all
    of them.
    """
    path, copy = tmp_path / "t.lance", tmp_path / "copy.lance"
    lists = [[b"a", None, b"c" * 9_000], None, [], [b""], [b"d"] * 3]
    rows = {row_id: lists[row_id % 5] for row_id in range(20)}
    frame = spark.createDataFrame([*rows.items()], "i long, l array<binary>")

    def content(path: Path) -> dict[int, Any]:
        dataset = lance.dataset(str(path))
        dataset.validate()
        result = dataset.to_table(blob_handling="all_binary").to_pylist()
        return {row["i"]: row["l"] for row in result}

    write(frame, **{"l.lance.encoding": "blob", "data_storage_version": "2.2"})
    assert [extension_name for _, extension_name in _blob_kinds(path)] == ["lance.blob.v2"]
    assert content(path) == rows
    as_bytes = read()
    assert dict(as_bytes.dtypes)["l"] == "array<binary>"
    # Append plain arrays, and rows that were read. A copy has blobs again.
    write(frame.selectExpr("i + 100 as i", "l"))
    write(as_bytes.where("i < 100").selectExpr("i + 200 as i", "l"))
    expected = {row_id + first: value for row_id, value in rows.items() for first in (0, 100, 200)}
    assert content(path) == expected
    write(read(), "overwrite", str(copy))
    assert _blob_kinds(copy) == _blob_kinds(path)
    assert content(copy) == expected
    # A stream writes to a table of pylance.
    theirs = tmp_path / "theirs.lance"
    field = pa.field("item", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    old = pa.table({"i": [-1], "l": pa.array([[b"old"]], pa.list_(field))})
    lance.write_dataset(old, str(theirs), data_storage_version="2.2")
    stream = spark.readStream.format("lance").load(str(copy))
    query = (
        stream.writeStream.format("lance")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(theirs))
    )
    query.awaitTermination()
    assert content(theirs) == {-1: [b"old"]} | expected
    expected = content(theirs)
    changed = LanceTable.forPath(spark, str(theirs))
    changed.update("i < 0", {"i": "i + 1001"})
    expected[1000] = expected.pop(-1)
    assert content(theirs) == expected
    source = spark.createDataFrame([(3, [b"new", None]), (500, None)], "i long, l array<binary>")
    merge = changed.alias("t").merge(source.alias("s"), "t.i = s.i")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    expected |= {3: [b"new", None], 500: None}
    assert content(theirs) == expected
    changed.delete("i between 4 and 9")
    changed.optimize().executeCompaction()
    assert content(theirs) == {
        row_id: item for row_id, item in expected.items() if not 4 <= row_id <= 9
    }


def _blob_kinds(path: Path) -> list[tuple[str, str]]:
    schema = lance_spark.open_dataset(str(path))._table.schema
    return [
        (node.logical_type, node.metadata["ARROW:extension:name"].decode())
        for node in schema.walk()
        if node.is_blob
    ]


def test_references(read: Read, write: Write, spark: Any, tmp_path: Path) -> None:
    path, file = tmp_path / "t.lance", tmp_path / "f.bin"
    file.write_bytes(b"0123456789" * 20)
    lance.write_dataset(table(extended([b"a"])), str(path))
    schema = "b struct<data: binary, uri: string, position: bigint, size: bigint>, i bigint"
    rows = [((None, file.as_uri(), None, None), 1), ((None, file.as_uri(), 3, 4), 2), (None, 3)]
    frame = spark.createDataFrame([*rows, ((b"here", None, None, None), 4)], schema)
    with pytest.raises(Exception, match=r"is a URI.*external_blob_mode"):
        write(frame)
    write(frame, allow_external_blob_outside_bases=True)
    write(frame.selectExpr("b", "i + 10 as i"), external_blob_mode="ingest")
    result = read().orderBy("i").collect()
    named = [file.read_bytes(), b"3456", None, b"here"]
    assert [None if row["b"] is None else bytes(row["b"]) for row in result] == [
        b"a",
        *named,
        *named,
    ]
    check_reads(path)


def test_tasks_that_fail_leave_no_files_of_blobs(
    read: Read, write: Write, frame: Any, tmp_path: Path
) -> None:
    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().partitionId() == 1:  # type: ignore[union-attr]
            raise RuntimeError("upstream")

    path = tmp_path / "t.lance"
    write(frame.withMetadata("b", SMALL).coalesce(1))
    before = set(path.rglob("data/**/*"))
    assert any(file.suffix == ".blob" for file in before)
    with pytest.raises(Exception, match="upstream"):
        write(frame.mapInArrow(failing, frame.schema))
    assert set(path.rglob("data/**/*")) == before
    assert by_id(read().collect()) == expected()


def test_options() -> None:
    result = ReadOptions.parse({"path": "t", "Blob_Handling": " ALL_BINARY "})
    assert result.blob_handling == "all_binary"
    assert ReadOptions.parse({"path": "t"}).blob_handling == "all_binary"
    with pytest.raises(InvalidOptionError, match="blob_handling must be one of all_binary"):
        ReadOptions.parse({"path": "t", "blob_handling": "bytes"})
    with pytest.raises(InvalidOptionError, match="did you mean blob_handling"):
        ReadOptions.parse({"path": "t", "blob_handlin": "none"})
    chosen = {
        "path": "t",
        "external_blob_mode": "Ingest",
        "blob_pack_file_size_threshold": "4096",
        "c.lance.encoding": "blob",
    }
    written = WriteOptions.parse(chosen)
    assert written.external_blob_mode == "ingest"
    assert written.blob_pack_file_size_threshold == 4096
    assert written.column_metadata == {"c": {"lance-encoding:blob": "true"}}
    assert not written.allow_external_blob_outside_bases
    for name, value in (
        ("external_blob_mode", "copy"),
        ("blob_pack_file_size_threshold", "0"),
        ("allow_external_blob_outside_bases", "perhaps"),
        ("c.lance.encoding", "zstd"),
    ):
        with pytest.raises(InvalidOptionError, match=name):
            WriteOptions.parse({"path": "t", name: value})
